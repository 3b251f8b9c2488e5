//! What is installed on a host, and what is missing.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime_config::{Engine, HostRoot, Loaded, Record, loaded};
use serde::Serialize;

use crate::install::{current, installed};
use crate::layout::{COMMANDS, HOOK, RUNTIME, record};
use crate::specifications;

#[derive(Debug, Serialize)]
pub struct Status {
    /// The version in use; `None`: nothing is installed.
    pub version: Option<String>,
    /// Every version on the host.
    pub versions: Vec<String>,
    /// The engines that were found, or were configured.
    pub engines: Vec<EngineStatus>,
    /// Our CDI specifications, by which an engine brings the hook without configuration.
    pub specifications: Vec<PathBuf>,
    pub missing: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct EngineStatus {
    pub engine: Engine,
    /// The program or socket by which it was found; `None`: it was not.
    pub found: Option<PathBuf>,
    /// Whether it is configured to call the hook.
    pub configured: bool,
    /// Whether the running engine has read that: "yes", "no", "not running", or "-".
    pub loaded: &'static str,
}

impl Status {
    /// Reads the state of a host. Changes nothing.
    pub fn read(host: &HostRoot) -> Result<Self> {
        let version = current(host)?.map(|v| v.to_string_lossy().into_owned());
        let mut missing = Vec::new();
        for program in [HOOK, RUNTIME, COMMANDS] {
            if version.is_some() && !host.exists(Path::new(program)) {
                missing.push(format!("{program}: install again"));
            }
        }
        let mut engines = Vec::new();
        for engine in Engine::ALL {
            let known = Record::load(host, &record(engine))?;
            let found = engine.detect(host);
            if found.is_some() || known.is_some() {
                engines.push(engine_status(
                    host,
                    engine,
                    found,
                    known.as_ref(),
                    &mut missing,
                )?);
            }
        }
        let versions = installed(host)?;
        Ok(Self {
            version,
            versions,
            engines,
            specifications: specifications::find(host)?,
            missing,
        })
    }

    /// Whether a version is installed and nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.version.is_some() && self.missing.is_empty()
    }
}

fn engine_status(
    host: &HostRoot,
    engine: Engine,
    found: Option<PathBuf>,
    known: Option<&Record>,
    missing: &mut Vec<String>,
) -> Result<EngineStatus> {
    let (mut configured, mut state) = (false, "-");
    if let Some(known) = known {
        let changed = known.verify(host)?;
        for path in &changed {
            missing.push(format!(
                "{engine}: {} was changed: install again",
                path.display()
            ));
        }
        configured = changed.is_empty();
        state = match loaded(host, engine, known) {
            Loaded::Yes => "yes",
            Loaded::NotRunning => "not running",
            Loaded::No => {
                missing.push(format!(
                    "{engine} has not read its configuration: restart it"
                ));
                "no"
            }
        };
    }
    Ok(EngineStatus {
        engine,
        found,
        configured,
        loaded: state,
    })
}

/// The table for people.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            None => writeln!(
                f,
                "boathook is not installed; boathook-init install does that"
            )?,
            Some(version) => {
                let others = self.versions.iter().filter(|v| *v != version);
                let others: Vec<_> = others.map(String::as_str).collect();
                write!(f, "boathook {version} is installed")?;
                match others.as_slice() {
                    [] => writeln!(f)?,
                    kept => writeln!(f, "; kept beside it: {}", kept.join(", "))?,
                }
            }
        }
        if !self.engines.is_empty() {
            writeln!(
                f,
                "\n{:<12}{:<12}{:<13}FOUND BY",
                "ENGINE", "CONFIGURED", "LOADED"
            )?;
        }
        for row in &self.engines {
            let configured = if row.configured { "yes" } else { "no" };
            let found = row
                .found
                .as_ref()
                .map_or("-".into(), |path| path.display().to_string());
            writeln!(
                f,
                "{:<12}{configured:<12}{:<13}{found}",
                row.engine, row.loaded
            )?;
        }
        if !self.specifications.is_empty() {
            writeln!(f, "\nCDI specifications:")?;
        }
        let mut files = self.specifications.iter();
        files.try_for_each(|path| writeln!(f, "  {}", path.display()))?;
        if !self.missing.is_empty() {
            writeln!(f, "\nmissing:")?;
        }
        self.missing
            .iter()
            .try_for_each(|line| writeln!(f, "  {line}"))
    }
}

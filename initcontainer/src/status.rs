//! Reports the installed version, the state of the engines, and missing parts.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime_config::{
    Engine, InstallationRecord, LoadState, PACKAGED_VERSION, compare_versions, find_load_state,
    find_running_programs,
};
use serde::Serialize;

use crate::compatibility;
use crate::host::Host;
use crate::install::{current_version, installed_versions};
use crate::manifest::Manifest;
use crate::specifications;
use crate::waiting;

/// The state of an installation, which the command `status` prints.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The version in use. `None` means that nothing is installed.
    pub version: Option<String>,
    /// All versions on the host, including those that are kept for running containers.
    pub versions: Vec<String>,
    /// The version of the distribution's package, if it is installed.
    pub packaged: Option<String>,
    /// The engines that were found or configured.
    pub engines: Vec<EngineStatus>,
    /// The CDI specifications that Boathook wrote. Because of them an engine calls the hook
    /// without any change of its configuration.
    pub specifications: Vec<PathBuf>,
    /// The toolkits under whose names Boathook is offered (`install --as`).
    pub toolkits: Vec<String>,
    /// The missing or changed parts, each with the command or action that repairs it.
    pub missing: Vec<String>,
}

/// The state of one engine.
#[derive(Debug, Serialize)]
pub struct EngineStatus {
    pub engine: Engine,
    /// The program or socket by which the engine was found. `None` means that it was configured
    /// but is no longer on the host.
    pub found: Option<PathBuf>,
    /// Whether the engine's files still have the text of the installation.
    pub configured: bool,
    /// Whether the running engine has read this configuration: "yes", "no" or "not running", or
    /// "-" if the engine was not configured.
    pub loaded: &'static str,
}

impl Status {
    /// Reads the state of a host without changing it.
    pub fn read(host: &Host) -> Result<Self> {
        let packaged = host.read(Path::new(PACKAGED_VERSION))?;
        let packaged = packaged.map(|text| text.trim_end().to_owned());
        let version = current_version(host)?.map(|v| v.to_string_lossy().into_owned());
        let mut missing = Vec::new();
        for program in [host.directories().hook(), host.runtime(), host.commands()] {
            if version.is_some() && !host.exists(&program) {
                missing.push(format!("{}: install again", program.display()));
            }
        }
        if let Some(version) = &version {
            let running = find_running_programs(&host.as_path().join("proc"), host.programs());
            let found = compare_versions(host.programs(), version, packaged.as_deref(), &running);
            for other in found {
                missing.push(format!("{}: {}", other.text, other.fix));
            }
        }
        let mut engines = Vec::new();
        for engine in Engine::ALL {
            let record = InstallationRecord::load(host, &host.record(engine))?;
            let found = engine.detect(host);
            if found.is_some() || record.is_some() {
                engines.push(engine_status(
                    host,
                    engine,
                    found,
                    record.as_ref(),
                    &mut missing,
                )?);
            }
        }
        let manifest = Manifest::load(host)?.unwrap_or_default();
        let toolkits = manifest.toolkits;
        let has_names = !toolkits.is_empty();
        for link in manifest.compatibility_links.iter().filter(|_| has_names) {
            if !compatibility::is_own_link(host, link)? {
                missing.push(format!(
                    "{} does not lead to boathook: install again with --as {}",
                    link.display(),
                    toolkits.join(",")
                ));
            }
        }
        missing.extend(compatibility::find_foreign_programs(
            host,
            &manifest.compatibility_links,
        ));
        missing.extend(waiting::describe_missing_follower(host));
        let versions = installed_versions(host)?;
        Ok(Self {
            version,
            versions,
            packaged,
            engines,
            specifications: specifications::find_specifications(host)?,
            toolkits,
            missing,
        })
    }

    /// Returns whether a version is installed and nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.version.is_some() && self.missing.is_empty()
    }
}

fn engine_status(
    host: &Host,
    engine: Engine,
    found: Option<PathBuf>,
    record: Option<&InstallationRecord>,
    missing: &mut Vec<String>,
) -> Result<EngineStatus> {
    let (mut configured, mut loaded) = (false, "-");
    if let Some(record) = record {
        let changed = record.verify(host)?;
        for path in &changed {
            missing.push(format!(
                "{engine}: {} was changed: install again",
                path.display()
            ));
        }
        configured = changed.is_empty();
        loaded = match find_load_state(host, engine, record) {
            LoadState::Yes => "yes",
            LoadState::NotRunning => "not running",
            LoadState::No => {
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
        loaded,
    })
}

/// Formats the status as a table for an operator.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            None => writeln!(
                f,
                "boathook is not installed; boathook-init install does that"
            )?,
            Some(version) => {
                let others: Vec<_> = self
                    .versions
                    .iter()
                    .filter(|v| *v != version)
                    .map(String::as_str)
                    .collect();
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
        if !self.toolkits.is_empty() {
            writeln!(f, "\nalso under the names of {}", self.toolkits.join(", "))?;
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

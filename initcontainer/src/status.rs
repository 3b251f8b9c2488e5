//! Reports the installed version, the state of the engines, and the files of the installation that
//! are missing or changed.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime_config::{
    Engine, InstallationRecord, LoadState, PACKAGED_VERSION_PATH, compare_versions,
    find_load_state, find_running_programs,
};
use serde::Serialize;

use crate::compatibility;
use crate::host::Host;
use crate::install::{find_current_version, list_installed_versions};
use crate::manifest::Manifest;
use crate::specifications;
use crate::waiting;

/// The state of an installation, which the command `status` prints.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The version in use. `None` means that no version is installed.
    pub version: Option<String>,
    /// All versions on the host, including those that are kept for running containers.
    pub versions: Vec<String>,
    /// The version that the distribution's package has installed. `None` means that no package is
    /// installed.
    #[serde(rename = "packaged")]
    pub package_version: Option<String>,
    /// The engines that were found or configured.
    pub engines: Vec<EngineStatus>,
    /// The CDI specifications that Boathook has written. An engine that reads them calls the hook
    /// without any change of its configuration.
    pub specifications: Vec<PathBuf>,
    /// The toolkits under whose names Boathook is offered (`install --as`).
    pub toolkits: Vec<String>,
    /// The parts of the installation that are missing or changed. Each line also names the command
    /// or action that repairs the part.
    #[serde(rename = "missing")]
    pub missing_parts: Vec<String>,
}

/// The state of one engine, which is a row of the table that `status` prints.
#[derive(Debug, Serialize)]
pub struct EngineStatus {
    pub engine: Engine,
    /// The program or socket by which the engine was found. `None` means that the engine was
    /// configured but is no longer on the host.
    #[serde(rename = "found")]
    pub found_path: Option<PathBuf>,
    /// Whether the engine's files still have the text that the installation wrote.
    #[serde(rename = "configured")]
    pub is_configured: bool,
    /// Whether the running engine has read the configuration: "yes", "no" or "not running". The
    /// value is "-" if the engine was not configured.
    #[serde(rename = "loaded")]
    pub load_state: &'static str,
}

impl Status {
    /// Reads the state of a host without changing it.
    pub fn read(host: &Host) -> Result<Self> {
        let package_version_text = host.read(Path::new(PACKAGED_VERSION_PATH))?;
        let package_version = package_version_text.map(|text| text.trim_end().to_owned());
        let version = find_current_version(host)?.map(|name| name.to_string_lossy().into_owned());
        let mut missing_parts = Vec::new();
        for program in [
            host.directories().hook_path(),
            host.runtime_path(),
            host.boathook_path(),
        ] {
            if version.is_some() && !host.exists(&program) {
                missing_parts.push(format!("{}: install again", program.display()));
            }
        }
        if let Some(version) = &version {
            let running_programs =
                find_running_programs(&host.as_path().join("proc"), host.programs_dir());
            let version_mismatches = compare_versions(
                host.programs_dir(),
                version,
                package_version.as_deref(),
                &running_programs,
            );
            for mismatch in version_mismatches {
                missing_parts.push(format!("{}: {}", mismatch.text, mismatch.fix));
            }
        }
        let mut engines = Vec::new();
        for engine in Engine::ALL {
            let record = InstallationRecord::load(host, &host.record_path(engine))?;
            let found_path = engine.detect(host);
            if found_path.is_some() || record.is_some() {
                engines.push(read_engine_status(
                    host,
                    engine,
                    found_path,
                    record.as_ref(),
                    &mut missing_parts,
                )?);
            }
        }
        let manifest = Manifest::load(host)?.unwrap_or_default();
        let toolkits = manifest.toolkits;
        let offers_toolkits = !toolkits.is_empty();
        for link in manifest.toolkit_links.iter().filter(|_| offers_toolkits) {
            if !compatibility::is_boathook_link(host, link)? {
                missing_parts.push(format!(
                    "{} does not lead to boathook: install again with --as {}",
                    link.display(),
                    toolkits.join(",")
                ));
            }
        }
        missing_parts.extend(compatibility::find_foreign_programs(
            host,
            &manifest.toolkit_links,
        ));
        missing_parts.extend(waiting::describe_missing_follower(host));
        let versions = list_installed_versions(host)?;
        Ok(Self {
            version,
            versions,
            package_version,
            engines,
            specifications: specifications::find_specifications(host)?,
            toolkits,
            missing_parts,
        })
    }

    /// Returns whether a version is installed and nothing is missing or changed.
    pub fn is_complete(&self) -> bool {
        self.version.is_some() && self.missing_parts.is_empty()
    }
}

/// Reads the state of an engine. Appends a line to `missing_parts` for each changed file, and one
/// if the running engine has not read its configuration.
fn read_engine_status(
    host: &Host,
    engine: Engine,
    found_path: Option<PathBuf>,
    record: Option<&InstallationRecord>,
    missing_parts: &mut Vec<String>,
) -> Result<EngineStatus> {
    let (mut is_configured, mut load_state) = (false, "-");
    if let Some(record) = record {
        let changed_files = record.find_changed_files(host)?;
        for path in &changed_files {
            missing_parts.push(format!(
                "{engine}: {} was changed: install again",
                path.display()
            ));
        }
        is_configured = changed_files.is_empty();
        load_state = match find_load_state(host, engine, record) {
            LoadState::Loaded => "yes",
            LoadState::NotRunning => "not running",
            LoadState::NotLoaded => {
                missing_parts.push(format!(
                    "{engine} has not read its configuration: restart it"
                ));
                "no"
            }
        };
    }
    Ok(EngineStatus {
        engine,
        found_path,
        is_configured,
        load_state,
    })
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            None => writeln!(
                f,
                "boathook is not installed; boathook-init install does that"
            )?,
            Some(version) => {
                let other_versions: Vec<_> = self
                    .versions
                    .iter()
                    .filter(|other| *other != version)
                    .map(String::as_str)
                    .collect();
                write!(f, "boathook {version} is installed")?;
                match other_versions.as_slice() {
                    [] => writeln!(f)?,
                    versions => writeln!(f, "; kept beside it: {}", versions.join(", "))?,
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
            let configured_text = if row.is_configured { "yes" } else { "no" };
            let found_text = row
                .found_path
                .as_ref()
                .map_or("-".into(), |path| path.display().to_string());
            writeln!(
                f,
                "{:<12}{configured_text:<12}{:<13}{found_text}",
                row.engine, row.load_state
            )?;
        }
        if !self.toolkits.is_empty() {
            writeln!(f, "\nalso under the names of {}", self.toolkits.join(", "))?;
        }
        if !self.specifications.is_empty() {
            writeln!(f, "\nCDI specifications:")?;
        }
        let mut paths = self.specifications.iter();
        paths.try_for_each(|path| writeln!(f, "  {}", path.display()))?;
        if !self.missing_parts.is_empty() {
            writeln!(f, "\nmissing:")?;
        }
        self.missing_parts
            .iter()
            .try_for_each(|line| writeln!(f, "  {line}"))
    }
}

//! Offers Boathook under the names of vendors' container toolkits (`--as`).
//!
//! The names come from the table `[compatibility]` of class files. A runtime name is written into
//! the engines' configuration. A program name becomes a link in a directory of Docker's PATH,
//! because Docker searches there before it accepts `--gpus`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use device_class::class::{Compatibility, DeviceClass};
use device_class::discover;
use device_class::host::RealHost;
use runtime_config::{Engine, OCI_RUNTIME_NAMES, RUNTIME_HANDLER_NAME, program_directories};

use crate::host::Host;
use crate::layout::PROGRAM_LINKS_DIR;
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;

/// The names under which an installation offers Boathook in place of vendors' container toolkits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplacedToolkits {
    /// The vendors' container toolkits that Boathook replaces, as the option `--as` names them.
    pub toolkits: Vec<String>,
    /// The additional names of `boathook-runtime`, such as the name of a vendor's runtime, of
    /// all engines together.
    pub runtime_names: Vec<String>,
    /// The symbolic links to create in Docker's PATH. Each entry is the path and the target of a
    /// link. The links have the names of the toolkits' programs.
    docker_links: Vec<(PathBuf, PathBuf)>,
    /// The toolkits whose names each engine uses, if they differ between the engines. An engine
    /// without an entry uses `toolkits`.
    toolkits_by_engine: BTreeMap<Engine, Vec<String>>,
    /// The toolkits of engines that an earlier installation configured and this run does not. Their
    /// names stay in the configuration of these engines.
    toolkits_of_unconfigured_engines: BTreeMap<Engine, Vec<String>>,
}

impl ReplacedToolkits {
    /// Collects the names of `toolkits` from the tables `[compatibility]` in the class files of a
    /// release.
    ///
    /// # Errors
    /// Returns an error if no class has a table for a toolkit, or if a table contains a runtime
    /// name that engines already use, such as `runc`.
    pub fn find(host: &Host, payload: &Payload, toolkits: &[String]) -> Result<Self> {
        let mut offered_names = Self::default();
        for toolkit in toolkits {
            let tables: Vec<&Compatibility> = payload
                .parsed_classes()
                .filter_map(|class| class.spec.compatibility.as_ref())
                .filter(|table| table.name.as_str() == toolkit && has_replaceable_programs(table))
                .collect();
            if tables.is_empty() {
                bail!("--as {toolkit}: {}", describe_known_toolkits(payload));
            }
            if offered_names.toolkits.contains(toolkit) {
                continue;
            }
            offered_names.toolkits.push(toolkit.clone());
            for table in tables {
                offered_names.add_toolkit_table(host, table)?;
            }
        }
        Ok(offered_names)
    }

    /// Collects the names if the engines use the names of different toolkits. An engine that
    /// `toolkits_by_engine` does not contain uses `toolkits`.
    pub fn find_with_engine_overrides(
        host: &Host,
        payload: &Payload,
        toolkits: &[String],
        toolkits_by_engine: BTreeMap<Engine, Vec<String>>,
    ) -> Result<Self> {
        let all_toolkits: Vec<String> = toolkits
            .iter()
            .chain(toolkits_by_engine.values().flatten())
            .cloned()
            .collect();
        let mut names = Self::find(host, payload, &all_toolkits)?;
        names.toolkits_by_engine = toolkits_by_engine;
        if let Some(docker_toolkits) = names.toolkits_by_engine.get(&Engine::Docker) {
            names.docker_links = Self::find(host, payload, docker_toolkits)?.docker_links;
        }
        Ok(names)
    }

    /// Keeps the names that an earlier installation configured for other engines, so that a run for
    /// some engines does not remove them. `engines` are the engines that this run configures.
    pub fn keep_names_of_other_engines(&mut self, old_manifest: &Manifest, engines: &[Engine]) {
        self.toolkits_of_unconfigured_engines = old_manifest.list_toolkits_by_engine();
        self.toolkits_of_unconfigured_engines
            .retain(|engine, toolkits| !engines.contains(engine) && !toolkits.is_empty());
    }

    /// Returns the toolkits under whose names `engine` calls Boathook after this run. A list for
    /// this engine alone has precedence over `toolkits`.
    pub(crate) fn toolkits_of_engine(&self, engine: Engine) -> &[String] {
        let toolkits = self.toolkits_by_engine.get(&engine);
        toolkits.map_or(&self.toolkits, Vec::as_slice)
    }

    /// Returns the toolkits that the manifest records: those of this run, and those of engines that
    /// this run does not configure.
    pub(crate) fn list_toolkits_to_record(&self) -> Vec<String> {
        let mut toolkits = self.toolkits.clone();
        for toolkit in self.toolkits_of_unconfigured_engines.values().flatten() {
            if !toolkits.contains(toolkit) {
                toolkits.push(toolkit.clone());
            }
        }
        toolkits
    }

    /// Returns whether the links in Docker's PATH stay unchanged. They do if an earlier
    /// installation made them for Docker and this run does not configure Docker.
    pub(crate) fn keeps_docker_links(&self) -> bool {
        self.toolkits_of_unconfigured_engines
            .contains_key(&Engine::Docker)
    }

    /// Adds the runtime names and the program links from the table `[compatibility]` of one class.
    fn add_toolkit_table(&mut self, host: &Host, table: &Compatibility) -> Result<()> {
        for runtime in table.runtimes.iter().map(|name| name.as_str()) {
            ensure!(
                runtime != RUNTIME_HANDLER_NAME && !OCI_RUNTIME_NAMES.contains(&runtime),
                "--as {}: [compatibility] of its class has the runtime `{runtime}`, a name that \
                 engines have already; take it out",
                table.name
            );
            if !self.runtime_names.iter().any(|name| name == runtime) {
                self.runtime_names.push(runtime.to_owned());
            }
        }
        let (hook_path, runtime_path) = (host.directories().hook_path(), host.runtime_path());
        let hook_links = table.hook_programs.iter().map(|name| (name, &hook_path));
        let runtime_links = table
            .runtime_programs
            .iter()
            .map(|name| (name, &runtime_path));
        for (name, target) in hook_links.chain(runtime_links) {
            let link = (
                Path::new(PROGRAM_LINKS_DIR).join(name.as_str()),
                target.clone(),
            );
            if !self.docker_links.contains(&link) {
                self.docker_links.push(link);
            }
        }
        Ok(())
    }

    /// Returns the symbolic links that the installation creates. Each entry is the path and the
    /// target of a link. The list is empty if Docker is not among `engines`, because only Docker
    /// searches for programs with these names.
    pub(crate) fn list_needed_links(
        &self,
        mut engines: impl Iterator<Item = Engine>,
    ) -> &[(PathBuf, PathBuf)] {
        if engines.any(|engine| engine == Engine::Docker) {
            &self.docker_links
        } else {
            &[]
        }
    }

    /// Returns an error if the host has another program with the name of a link that must be made.
    /// Docker would call that program instead of the link if its directory comes first in Docker's
    /// PATH.
    pub(crate) fn refuse_foreign_programs(&self, host: &Host) -> Result<()> {
        let links = self.docker_links.iter().map(|(link, _)| link);
        match find_foreign_programs(host, links).into_iter().next() {
            None => Ok(()),
            Some(description) => bail!(
                "--as {}: {description}, or run `boathook-init install --no-as`",
                self.toolkits.join(",")
            ),
        }
    }
}

/// Finds programs of the host that have the same name as one of `links` but are not links to
/// Boathook. Returns a description of each of these programs.
pub(crate) fn find_foreign_programs<'l>(
    host: &Host,
    links: impl IntoIterator<Item = &'l PathBuf>,
) -> Vec<String> {
    let mut descriptions = Vec::new();
    for name in links.into_iter().filter_map(|link| link.file_name()) {
        for directory in program_directories() {
            let path = Path::new(directory).join(name);
            let exists = host
                .find_entry(&path)
                .is_some_and(|entry| entry.stat().is_ok_and(|stat| stat.is_some()));
            if exists && !is_boathook_link(host, &path).unwrap_or(false) {
                descriptions.push(format!(
                    "{} is there, which boathook-init did not make: remove it, or the package \
                     that it belongs to",
                    path.display()
                ));
            }
        }
    }
    descriptions
}

/// Returns whether a path is a symbolic link to the installed hook or to `boathook-runtime`.
pub(crate) fn is_boathook_link(host: &Host, path: &Path) -> Result<bool> {
    let target = host.read_link(path)?;
    let boathook_programs = [host.directories().hook_path(), host.runtime_path()];
    Ok(target.is_some_and(|target| boathook_programs.contains(&target)))
}

/// Plans the steps that create `links` and remove other links of an earlier installation. Each
/// entry of `links` is the path and the target of a link. Plans no steps if Docker keeps its links
/// ([`ReplacedToolkits::keeps_docker_links`]).
pub(crate) fn plan_links(
    host: &Host,
    manifest: &Manifest,
    names: &ReplacedToolkits,
    links: &[(PathBuf, PathBuf)],
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    if names.keeps_docker_links() {
        return Ok(steps);
    }
    for (link, target) in links {
        let old_target = host.read_link(link)?;
        if old_target.as_ref() != Some(target) {
            steps.push(Step::SetLink {
                link: link.clone(),
                old_target,
                new_target: Some(target.clone()),
            });
        }
    }
    for link in &manifest.toolkit_links {
        if !links.iter().any(|(path, _)| path == link) {
            steps.extend(plan_link_removal(host, link)?);
        }
    }
    Ok(steps)
}

/// Returns a step that removes a link. Returns `None` if the link no longer leads to a program of
/// Boathook, because another program may have replaced it.
pub(crate) fn plan_link_removal(host: &Host, link: &Path) -> Result<Option<Step>> {
    Ok(is_boathook_link(host, link)?.then_some(Step::SetLink {
        link: link.into(),
        old_target: host.read_link(link)?,
        new_target: None,
    }))
}

/// Returns the vendors' toolkits that `--as` could replace on this host. The host has devices of
/// these vendors, but Boathook does not use the names of the toolkits yet. Each entry is the name
/// of a toolkit and the description of a class with such devices. If there are several classes, one
/// that is enabled by default is preferred.
pub fn find_unoffered_toolkits(
    host: &Host,
    payload: &Payload,
    offered_names: &ReplacedToolkits,
) -> Vec<(String, String)> {
    let Ok(view) = RealHost::open(host.as_path()) else {
        return Vec::new();
    };
    let offered_toolkits = offered_names.list_toolkits_to_record();
    let has_device = |class: &DeviceClass| !discover::find_devices(class, &view).devices.is_empty();
    let mut unoffered_toolkits: Vec<(String, String)> = Vec::new();
    let mut classes: Vec<_> = payload.parsed_classes().collect();
    classes.sort_by_key(|class| !class.spec.is_enabled);
    for class in classes {
        let Some(table) = class
            .spec
            .compatibility
            .as_ref()
            .filter(has_replaceable_programs)
        else {
            continue;
        };
        let name = table.name.as_str();
        let is_known = offered_toolkits.iter().any(|toolkit| toolkit == name)
            || unoffered_toolkits
                .iter()
                .any(|(toolkit, _)| toolkit == name);
        if !is_known && has_device(class) {
            unoffered_toolkits.push((name.to_owned(), class.spec.description.clone()));
        }
    }
    unoffered_toolkits
}

/// Returns whether a table `[compatibility]` names a runtime or a program that Boathook can
/// replace. Some tables name only services of the vendor.
fn has_replaceable_programs(table: &&Compatibility) -> bool {
    !(table.runtimes.is_empty()
        && table.hook_programs.is_empty()
        && table.runtime_programs.is_empty())
}

fn describe_known_toolkits(payload: &Payload) -> String {
    let unique_names: BTreeSet<&str> = payload
        .parsed_classes()
        .filter_map(|class| class.spec.compatibility.as_ref())
        .filter(has_replaceable_programs)
        .map(|table| table.name.as_str())
        .collect();
    if unique_names.is_empty() {
        return "no class of this release has the table [compatibility]".to_owned();
    }
    let names: Vec<&str> = unique_names.into_iter().collect();
    format!(
        "no class of this release has this name in [compatibility]; there are {}",
        names.join(", ")
    )
}

//! Offers Boathook under the names of vendors' container toolkits (`--as`).
//!
//! The names come from the table `[compatibility]` of class files. A runtime name is written into
//! the engines' configuration. A program name becomes a link in a directory of Docker's PATH,
//! because Docker searches there before it accepts `--gpus`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use device_class::class::{Compatibility, DeviceClass};
use device_class::discover;
use device_class::host::RealHost;
use runtime_config::{Engine, HANDLER, RUNTIMES, program_directories};

use crate::host::Host;
use crate::layout::LINKS;
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;

/// The offered names of an installation, and the links for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfferedNames {
    /// The toolkits that `--as` names.
    pub toolkits: Vec<String>,
    /// The additional names of the wrapper runtime, for all engines.
    pub runtimes: Vec<String>,
    /// The links for Docker, each as its path and target.
    links: Vec<(PathBuf, PathBuf)>,
}

impl OfferedNames {
    /// Finds the names of the toolkits in the class files of a release.
    ///
    /// # Errors
    /// Fails if no class has the names of a toolkit, or if a runtime name already has another
    /// meaning.
    pub fn find(host: &Host, payload: &Payload, toolkits: &[String]) -> Result<Self> {
        let mut offered = Self::default();
        for toolkit in toolkits {
            let tables: Vec<&Compatibility> = payload
                .parsed_classes()
                .filter_map(|class| class.spec.compatibility.as_ref())
                .filter(|table| table.name.as_str() == toolkit)
                .collect();
            if tables.is_empty() {
                bail!("--as {toolkit}: {}", describe_known_toolkits(payload));
            }
            if offered.toolkits.contains(toolkit) {
                continue;
            }
            offered.toolkits.push(toolkit.clone());
            for table in tables {
                offered.add(host, table)?;
            }
        }
        Ok(offered)
    }

    fn add(&mut self, host: &Host, table: &Compatibility) -> Result<()> {
        for runtime in table.runtimes.iter().map(|name| name.as_str()) {
            ensure!(
                runtime != HANDLER && !RUNTIMES.contains(&runtime),
                "--as {}: [compatibility] of its class has the runtime `{runtime}`, a name that \
                 engines have already; take it out",
                table.name
            );
            if !self.runtimes.iter().any(|name| name == runtime) {
                self.runtimes.push(runtime.to_owned());
            }
        }
        let (hook, runtime) = (host.directories().hook(), host.runtime());
        let hooks = table.hook_programs.iter().map(|name| (name, &hook));
        let runtimes = table.runtime_programs.iter();
        let runtimes = runtimes.map(|name| (name, &runtime));
        for (name, target) in hooks.chain(runtimes) {
            let link = (Path::new(LINKS).join(name.as_str()), target.clone());
            if !self.links.contains(&link) {
                self.links.push(link);
            }
        }
        Ok(())
    }

    /// Returns the links that the host needs. There are none without Docker, which alone searches
    /// for such programs.
    pub(crate) fn links(&self, mut engines: impl Iterator<Item = Engine>) -> &[(PathBuf, PathBuf)] {
        if engines.any(|engine| engine == Engine::Docker) {
            &self.links
        } else {
            &[]
        }
    }

    /// Fails if the host has another program with one of the names, because Docker would call
    /// whichever comes first in its PATH.
    pub(crate) fn refuse_foreign_programs(&self, host: &Host) -> Result<()> {
        let names = self.links.iter().map(|(link, _)| link);
        match find_foreign_programs(host, names).into_iter().next() {
            None => Ok(()),
            Some(found) => bail!(
                "--as {}: {found}, or leave --as out",
                self.toolkits.join(",")
            ),
        }
    }
}

/// Finds programs that have the name of one of `links` and are not links of Boathook. Returns a
/// description of each.
pub(crate) fn find_foreign_programs<'l>(
    host: &Host,
    links: impl IntoIterator<Item = &'l PathBuf>,
) -> Vec<String> {
    let mut found = Vec::new();
    for name in links.into_iter().filter_map(|link| link.file_name()) {
        for directory in program_directories() {
            let path = Path::new(directory).join(name);
            let is_there = host
                .reach(&path)
                .is_some_and(|place| place.stat().is_ok_and(|stat| stat.is_some()));
            if is_there && !is_own_link(host, &path).unwrap_or(false) {
                found.push(format!(
                    "{} is there, which boathook-init did not make: remove it, or the package \
                     that it belongs to",
                    path.display()
                ));
            }
        }
    }
    found
}

/// Returns whether a path is a link to the installed hook or wrapper runtime.
pub(crate) fn is_own_link(host: &Host, path: &Path) -> Result<bool> {
    let target = host.read_link(path)?;
    let own = [host.directories().hook(), host.runtime()];
    Ok(target.is_some_and(|target| own.contains(&target)))
}

/// Plans the creation of the links `wanted`, and the removal of other links that an earlier
/// installation made.
pub(crate) fn plan_links(
    host: &Host,
    manifest: &Manifest,
    wanted: &[(PathBuf, PathBuf)],
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (link, target) in wanted {
        let before = host.read_link(link)?;
        if before.as_ref() != Some(target) {
            steps.push(Step::SetLink {
                link: link.clone(),
                before,
                after: Some(target.clone()),
            });
        }
    }
    for link in &manifest.compatibility_links {
        if !wanted.iter().any(|(path, _)| path == link) {
            steps.extend(remove_link(host, link)?);
        }
    }
    Ok(steps)
}

/// Plans the removal of a link, if it still leads to Boathook.
pub(crate) fn remove_link(host: &Host, link: &Path) -> Result<Option<Step>> {
    Ok(is_own_link(host, link)?.then_some(Step::SetLink {
        link: link.into(),
        before: host.read_link(link)?,
        after: None,
    }))
}

/// Returns the toolkits that are not offered although the host has devices for them. Each comes
/// with the description of a class of these devices, if possible one that is enabled by default.
pub fn find_offers(
    host: &Host,
    payload: &Payload,
    offered: &OfferedNames,
) -> Vec<(String, String)> {
    let Ok(view) = RealHost::open(host.as_path()) else {
        return Vec::new();
    };
    let has_device = |class: &DeviceClass| !discover::devices(class, &view).devices.is_empty();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut classes: Vec<_> = payload.parsed_classes().collect();
    classes.sort_by_key(|class| !class.spec.enabled);
    for class in classes {
        let Some(table) = &class.spec.compatibility else {
            continue;
        };
        let name = table.name.as_str();
        let is_known = offered.toolkits.iter().any(|toolkit| toolkit == name)
            || found.iter().any(|(toolkit, _)| toolkit == name);
        if !is_known && has_device(class) {
            found.push((name.to_owned(), class.spec.description.clone()));
        }
    }
    found
}

fn describe_known_toolkits(payload: &Payload) -> String {
    let names: BTreeSet<&str> = payload
        .parsed_classes()
        .filter_map(|class| Some(class.spec.compatibility.as_ref()?.name.as_str()))
        .collect();
    if names.is_empty() {
        return "no class of this release has the table [compatibility]".to_owned();
    }
    let names: Vec<&str> = names.into_iter().collect();
    format!(
        "no class of this release has this name in [compatibility]; there are {}",
        names.join(", ")
    )
}

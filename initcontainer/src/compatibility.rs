//! The names of other toolkits under which an installation offers Boathook (`--as`).
//!
//! The names come from the table `[compatibility]` of class files. Names of runtimes are written
//! into the engines' configurations. Names of programs become links in a directory of Docker's
//! PATH, because Docker looks there before it accepts `--gpus`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use device_class::class::{Compatibility, DeviceClass};
use device_class::discover;
use device_class::host::RealHost;
use runtime_config::{Engine, HANDLER, HostRoot, RUNTIMES, program_directories};

use crate::layout::{HOOK, LINKS, RUNTIME};
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;

/// The names that an installation offers, and the paths that they take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfferedNames {
    /// The values of `--as`.
    pub toolkits: Vec<String>,
    /// The names of the runtime, for all engines.
    pub runtimes: Vec<String>,
    /// The links for Docker, each with its target.
    links: Vec<(PathBuf, PathBuf)>,
}

impl OfferedNames {
    /// Finds the names of the toolkits `toolkits` in the class files of a release.
    ///
    /// # Errors
    /// Fails if no class has a toolkit's names, or if a name of a runtime already has a meaning.
    pub fn find(payload: &Payload, toolkits: &[String]) -> Result<Self> {
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
                offered.add(table)?;
            }
        }
        Ok(offered)
    }

    fn add(&mut self, table: &Compatibility) -> Result<()> {
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
        let hooks = table.hook_programs.iter().map(|name| (name, HOOK));
        let runtimes = table.runtime_programs.iter().map(|name| (name, RUNTIME));
        for (name, target) in hooks.chain(runtimes) {
            let link = (Path::new(LINKS).join(name.as_str()), PathBuf::from(target));
            if !self.links.contains(&link) {
                self.links.push(link);
            }
        }
        Ok(())
    }

    /// Returns the links that the host must have. Only Docker looks for programs.
    pub(crate) fn links(&self, mut engines: impl Iterator<Item = Engine>) -> &[(PathBuf, PathBuf)] {
        if engines.any(|engine| engine == Engine::Docker) {
            &self.links
        } else {
            &[]
        }
    }

    /// Fails if the host has a program with one of the names that is not a link of Boathook's,
    /// because Docker would call whichever comes first in its PATH.
    pub(crate) fn refuse_foreign_programs(&self, host: &HostRoot) -> Result<()> {
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

/// Finds programs of the host with the names of `links` that are not links of Boathook's. Returns a
/// description of each.
pub(crate) fn find_foreign_programs<'l>(
    host: &HostRoot,
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

/// Returns whether a path is a link to Boathook's hook or runtime.
pub(crate) fn is_own_link(host: &HostRoot, path: &Path) -> Result<bool> {
    let target = host.read_link(path)?;
    Ok(target.is_some_and(|target| [HOOK, RUNTIME].iter().any(|own| target == Path::new(own))))
}

/// Returns the steps that make the links `wanted`, and that remove those of an earlier
/// installation which are not wanted any more.
pub(crate) fn plan_links(
    host: &HostRoot,
    manifest: &Manifest,
    wanted: &[(PathBuf, PathBuf)],
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for (link, target) in wanted {
        let before = host.read_link(link)?;
        if before.as_ref() != Some(target) {
            steps.push(Step::Point {
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

/// Returns the step that removes a link, if the link still leads to Boathook.
pub(crate) fn remove_link(host: &HostRoot, link: &Path) -> Result<Option<Step>> {
    Ok(is_own_link(host, link)?.then_some(Step::Point {
        link: link.into(),
        before: host.read_link(link)?,
        after: None,
    }))
}

/// Returns the names of toolkits that are not offered, but for whose devices the host has some.
/// A class of such a toolkit is shown by its description.
pub fn find_offers(
    host: &HostRoot,
    payload: &Payload,
    offered: &OfferedNames,
) -> Vec<(String, String)> {
    let Ok(view) = RealHost::open(host.as_path()) else {
        return Vec::new();
    };
    let has_device = |class: &DeviceClass| !discover::devices(class, &view).devices.is_empty();
    let mut found: Vec<(String, String)> = Vec::new();
    for class in payload.parsed_classes() {
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

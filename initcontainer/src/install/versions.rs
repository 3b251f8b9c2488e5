//! Plans the directories of versions, and the link `current` to the version in use.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::host::Host;
use crate::in_use;
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;
use crate::tree;

/// Returns an error if the directory of the installation has something that an installation would
/// replace, or a removal take away, and that no installation has made.
pub(super) fn refuse_foreign_files(host: &Host, version: &str) -> Result<()> {
    let manifest = Manifest::load(host)?;
    let mut foreign = Vec::new();
    let is_own = manifest
        .as_ref()
        .is_some_and(|manifest| manifest.versions.iter().any(|own| own == version));
    let version = host.version(version);
    if !is_own && host.try_exists(&version)? {
        foreign.push(version);
    }
    if manifest.is_none() {
        if host.try_exists(&host.current())? {
            foreign.push(host.current());
        }
        if !host.list(&host.state())?.is_empty() {
            foreign.push(host.state());
        }
    }
    let foreign: Vec<_> = foreign.iter().map(|path| path.to_string_lossy()).collect();
    ensure!(
        foreign.is_empty(),
        "{} exists already, and no installation of Boathook has recorded it in {}: move it away, or \
         install in another directory (--prefix)",
        foreign.join(", "),
        host.manifest().display()
    );
    Ok(())
}

pub(super) fn plan_version(host: &Host, payload: &Payload) -> Result<Vec<Step>> {
    let dir = host.version(&payload.version);
    let exchange = match host.entry(&dir) {
        Ok(place) if tree::is_copy_of(&place, payload) => return Ok(Vec::new()),
        Ok(place) => place.stat()?.is_some(),
        // An error means that the program directory does not exist yet.
        Err(_) => false,
    };
    let staging = host.staging(&payload.version);
    let mut steps = vec![
        Step::Stage {
            payload: payload.clone(),
            to: staging.clone(),
        },
        Step::Publish {
            from: staging.clone(),
            to: dir,
            exchange,
        },
    ];
    // After an exchange the staging directory has the old files.
    steps.extend(exchange.then_some(Step::Discard { path: staging }));
    Ok(steps)
}

pub(super) fn switch_version(host: &Host, version: &str) -> Result<Option<Step>> {
    let before = current_version(host)?;
    let after = Some(PathBuf::from(version));
    Ok((before != after).then(|| Step::SetLink {
        link: host.current(),
        before,
        after,
    }))
}

/// Returns the target of the link `current`, or `None` if the link does not exist.
pub fn current_version(host: &Host) -> Result<Option<PathBuf>> {
    Ok(host.read_link(&host.current())?)
}

/// Plans the removal of unused versions. These versions are kept: the new one, the previous one,
/// with which containers may just be starting, and those that the bundle of a container names.
pub(super) fn discard_unused_versions(host: &Host, version: &str) -> Result<Vec<Step>> {
    let before = current_version(host)?;
    let used = in_use::find_used_versions(host)?;
    let mut steps = Vec::new();
    for name in installed_versions(host)? {
        let is_before = before.as_deref() == Some(Path::new(&name));
        if name != version && !is_before && !used.contains(&name) {
            steps.push(Step::Discard {
                path: host.version(&name),
            });
        }
    }
    Ok(steps)
}

/// Returns the installed versions of a host, sorted.
pub fn installed_versions(host: &Host) -> Result<Vec<String>> {
    let versions = Manifest::load(host)?.unwrap_or_default().versions;
    let mut versions = find_version_dirs(host, versions)?;
    versions.sort();
    Ok(versions)
}

/// Returns those of `versions` whose directories exist.
pub(super) fn find_version_dirs(host: &Host, versions: Vec<String>) -> Result<Vec<String>> {
    let mut present = Vec::new();
    for version in versions {
        if host.try_exists(&host.version(&version))? {
            present.push(version);
        }
    }
    Ok(present)
}

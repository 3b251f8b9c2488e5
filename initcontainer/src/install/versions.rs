//! Plans the directories of versions below the directory of the installation, and the link to the
//! version in use.

use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime_config::HostRoot;

use crate::in_use;
use crate::layout::{CURRENT, staging_dir, version_dir};
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;
use crate::tree;

pub(super) fn plan_version(host: &HostRoot, payload: &Payload) -> Result<Vec<Step>> {
    let dir = version_dir(&payload.version);
    let exchange = match host.entry(&dir) {
        Ok(place) if tree::is_copy_of(&place, payload) => return Ok(Vec::new()),
        Ok(place) => place.stat()?.is_some(),
        // An error means that the directory of the installation does not exist yet.
        Err(_) => false,
    };
    let staging = staging_dir(&payload.version);
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
    // After an exchange the staging directory contains the old files.
    steps.extend(exchange.then_some(Step::Discard { path: staging }));
    Ok(steps)
}

pub(super) fn switch_version(host: &HostRoot, version: &str) -> Result<Option<Step>> {
    let before = current_version(host)?;
    let after = Some(PathBuf::from(version));
    Ok((before != after).then(|| Step::Point {
        link: CURRENT.into(),
        before,
        after,
    }))
}

/// Returns the target of the link to the version in use, or `None` if there is no link.
pub fn current_version(host: &HostRoot) -> Result<Option<PathBuf>> {
    Ok(host.read_link(Path::new(CURRENT))?)
}

/// Returns the steps that remove unused versions. Three kinds of versions are kept: the new one,
/// the previous one, with which containers may be starting just now, and versions that the
/// bundle of a container names.
pub(super) fn discard_unused_versions(host: &HostRoot, version: &str) -> Result<Vec<Step>> {
    let before = current_version(host)?;
    let used = in_use::find_used_versions(host)?;
    let mut steps = Vec::new();
    for name in installed_versions(host)? {
        let is_before = before.as_deref() == Some(Path::new(&name));
        if name != version && !is_before && !used.contains(&name) {
            steps.push(Step::Discard {
                path: version_dir(&name),
            });
        }
    }
    Ok(steps)
}

/// Returns the versions on a host that this program installed, sorted.
pub fn installed_versions(host: &HostRoot) -> Result<Vec<String>> {
    let versions = Manifest::load(host)?.unwrap_or_default().versions;
    let mut versions = find_version_dirs(host, versions)?;
    versions.sort();
    Ok(versions)
}

/// Returns the versions whose directory exists on the host.
pub(super) fn find_version_dirs(host: &HostRoot, versions: Vec<String>) -> Result<Vec<String>> {
    let mut present = Vec::new();
    for version in versions {
        if host.try_exists(&version_dir(&version))? {
            present.push(version);
        }
    }
    Ok(present)
}

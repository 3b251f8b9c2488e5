//! Plans the directories of installed versions, and the symbolic link `current` to the version in
//! use.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::host::Host;
use crate::in_use;
use crate::manifest::Manifest;
use crate::payload::Payload;
use crate::step::Step;
use crate::tree;

/// Returns an error if the program directory has files that no installation of Boathook has made.
/// This installation would replace them, or `uninstall` would delete them.
pub(super) fn refuse_foreign_files(host: &Host, version: &str) -> Result<()> {
    let manifest = Manifest::load(host)?;
    let mut foreign_paths = Vec::new();
    let is_recorded = manifest.as_ref().is_some_and(|manifest| {
        manifest
            .versions
            .iter()
            .any(|recorded_version| recorded_version == version)
    });
    let version_dir = host.version_dir(version);
    if !is_recorded && host.try_exists(&version_dir)? {
        foreign_paths.push(version_dir);
    }
    if manifest.is_none() {
        if host.try_exists(&host.current_link_path())? {
            foreign_paths.push(host.current_link_path());
        }
        if !host.list(&host.state_dir())?.is_empty() {
            foreign_paths.push(host.state_dir());
        }
    }
    let foreign_names: Vec<_> = foreign_paths
        .iter()
        .map(|path| path.to_string_lossy())
        .collect();
    ensure!(
        foreign_names.is_empty(),
        "{} exists already, and no installation of Boathook has recorded it in {}: move it away, or \
         install in another directory (--prefix)",
        foreign_names.join(", "),
        host.manifest_path().display()
    );
    Ok(())
}

/// Plans the directory of the payload's version. There are no steps if the host already has an
/// exact copy of the payload.
pub(super) fn plan_version(host: &Host, payload: &Payload) -> Result<Vec<Step>> {
    let dir = host.version_dir(&payload.version);
    let replaces_existing = match host.resolve_nofollow(&dir) {
        Ok(entry) if tree::is_payload_copy(&entry, payload) => return Ok(Vec::new()),
        Ok(entry) => entry.stat()?.is_some(),
        // An error means that the program directory does not exist yet.
        Err(_) => false,
    };
    let staging_dir = host.staging_dir(&payload.version);
    let mut steps = vec![
        Step::Stage {
            payload: Box::new(payload.clone()),
            staging_dir: staging_dir.clone(),
        },
        Step::Publish {
            staging_dir: staging_dir.clone(),
            final_dir: dir,
            replaces_existing,
        },
    ];
    // After the two directories were exchanged, the staging directory contains the old files.
    steps.extend(replaces_existing.then_some(Step::Discard { path: staging_dir }));
    Ok(steps)
}

/// Returns the step that makes the symbolic link `current` lead to `version`, or `None` if it
/// already does.
pub(super) fn plan_version_switch(host: &Host, version: &str) -> Result<Option<Step>> {
    let old_target = find_current_version(host)?;
    let new_target = Some(PathBuf::from(version));
    Ok((old_target != new_target).then(|| Step::SetLink {
        link: host.current_link_path(),
        old_target,
        new_target,
    }))
}

/// Returns the target of the symbolic link `current`, or `None` if the link does not exist.
pub fn find_current_version(host: &Host) -> Result<Option<PathBuf>> {
    Ok(host.read_link(&host.current_link_path())?)
}

/// Plans the removal of unused versions. Three kinds of versions are kept: the new version, the
/// previous version, with which containers may be starting now, and the versions whose paths are in
/// the bundles of containers.
pub(super) fn plan_unused_version_removal(host: &Host, version: &str) -> Result<Vec<Step>> {
    let previous_version = find_current_version(host)?;
    let used_versions = in_use::find_used_versions(host)?;
    let mut steps = Vec::new();
    for name in list_installed_versions(host)? {
        let is_previous = previous_version.as_deref() == Some(Path::new(&name));
        if name != version && !is_previous && !used_versions.contains(&name) {
            steps.push(Step::Discard {
                path: host.version_dir(&name),
            });
        }
    }
    Ok(steps)
}

/// Returns the versions that the manifest records and whose directories exist, sorted by name.
pub fn list_installed_versions(host: &Host) -> Result<Vec<String>> {
    let recorded_versions = Manifest::load(host)?.unwrap_or_default().versions;
    let mut versions = filter_present_versions(host, recorded_versions)?;
    versions.sort();
    Ok(versions)
}

/// Returns those of `versions` whose directories exist on the host.
pub(super) fn filter_present_versions(host: &Host, versions: Vec<String>) -> Result<Vec<String>> {
    let mut present_versions = Vec::new();
    for version in versions {
        if host.try_exists(&host.version_dir(&version))? {
            present_versions.push(version);
        }
    }
    Ok(present_versions)
}

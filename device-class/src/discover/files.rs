//! Files and directories of a class, as a host has them.

use std::path::{Path, PathBuf};

use super::DeviceError;
use super::driver_root::DriverRoot;
use super::found::{FoundDirectory, FoundFile, Presence};
use super::paths::{both, present};
use crate::class;
use crate::host::Entry;
use crate::template::Attributes;

pub(super) fn file(
    spec: &class::File,
    binary: bool,
    attributes: &Attributes,
    optional: bool,
    driver: DriverRoot<'_>,
) -> Result<FoundFile, DeviceError> {
    let (mut path, container) = both(&spec.path, spec.container_path.as_ref(), attributes)?;
    let is_there = |path: &Path| matches!(driver.view.entry(path), Ok(Some(_)));
    for fallback in &spec.fallbacks {
        if is_there(&path) {
            break;
        }
        let fallback = fallback.fill(attributes)?;
        if is_there(&fallback) {
            path = fallback;
        }
    }
    let file = file_at(&path, optional || spec.optional, driver);
    Ok(FoundFile {
        path,
        container,
        binary,
        file,
    })
}

pub(super) fn file_at(path: &Path, optional: bool, driver: DriverRoot<'_>) -> Presence<PathBuf> {
    let canonical = driver.canonical(path).unwrap_or_else(|_| path.to_owned());
    present(path, optional, "a file", driver.view, |entry| {
        // Sockets of a driver's daemons are given as files, too.
        matches!(entry, Entry::File | Entry::Other).then_some(canonical)
    })
}

pub(super) fn directory(
    spec: &class::Directory,
    attributes: &Attributes,
    optional: bool,
    driver: DriverRoot<'_>,
) -> Result<FoundDirectory, DeviceError> {
    let (path, container) = both(&spec.path, spec.container_path.as_ref(), attributes)?;
    let directory = directory_at(&path, optional || spec.optional, driver);
    let mut libraries = Vec::new();
    if spec.libraries && matches!(directory, Presence::Found(_)) {
        libraries = driver.view.list(&path).map_err(|error| DeviceError::Io {
            path: path.clone(),
            error,
        })?;
        libraries.retain(|name| class::SoName::try_from(name.clone()).is_ok());
        libraries.sort_unstable();
    }
    Ok(FoundDirectory {
        path,
        container,
        writable: spec.writable,
        libraries,
        directory,
    })
}

pub(super) fn directory_at(
    path: &Path,
    optional: bool,
    driver: DriverRoot<'_>,
) -> Presence<PathBuf> {
    let canonical = driver.canonical(path).unwrap_or_else(|_| path.to_owned());
    present(path, optional, "a directory", driver.view, |entry| {
        (entry == Entry::Directory).then_some(canonical)
    })
}

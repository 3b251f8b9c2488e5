//! Files and directories of a class, as a host has them.

use std::path::{Path, PathBuf};

use super::DeviceError;
use super::driver_root::DriverRoot;
use super::found::{FileSource, FoundDirectory, FoundFile, Presence};
use super::paths::{both, present};
use crate::class::{self, FileKind};
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
    let is_there = |path: &Path| matches!(driver.view.place(path), Ok(Some(_)));
    for fallback in &spec.fallbacks {
        if is_there(&path) {
            break;
        }
        let fallback = fallback.fill(attributes)?;
        if is_there(&fallback) {
            path = fallback;
        }
    }
    let file = file_at(&path, &[spec.kind], optional || spec.optional, driver);
    Ok(FoundFile {
        path,
        container,
        binary,
        file,
    })
}

pub(super) fn file_at(
    path: &Path,
    kinds: &[FileKind],
    optional: bool,
    driver: DriverRoot<'_>,
) -> Presence<FileSource> {
    let wanted = match kinds {
        [FileKind::Socket] => "a socket",
        _ => "a regular file",
    };
    present(path, optional, wanted, driver.view, |place| {
        let kind = match place.entry {
            Entry::File => FileKind::File,
            Entry::Socket => FileKind::Socket,
            _ => return None,
        };
        let path = driver.on_host(place.path);
        kinds.contains(&kind).then_some(FileSource { path, kind })
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
        libraries = driver
            .view
            .list(&path)
            .map_err(|error| DeviceError::io(&path, &error))?;
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
    present(path, optional, "a directory", driver.view, |place| {
        (place.entry == Entry::Directory).then(|| driver.on_host(place.path))
    })
}

//! Looks up the files and directories of a class on a host.

use std::path::{Path, PathBuf};

use super::DeviceError;
use super::driver_root::DriverRoot;
use super::found::{FileSource, FoundDirectory, FoundFile, Presence};
use super::paths::{fill_both_paths, present};
use crate::class::{self, FileKind};
use crate::host::Entry;
use crate::ownership::OwnershipError;
use crate::template::Attributes;

/// Looks up a file of a class. With `programs` the file is a program: it is also searched in these
/// directories if it is not at its path, and it is optional, because hosts often lack some of a
/// driver's tools.
pub(super) fn file(
    spec: &class::File,
    programs: Option<&[PathBuf]>,
    attributes: &Attributes,
    optional: bool,
    driver: DriverRoot<'_>,
) -> Result<FoundFile, DeviceError> {
    let (mut path, container) =
        fill_both_paths(&spec.path, spec.container_path.as_ref(), attributes)?;
    let binary = programs.is_some();
    let mut candidates = vec![path.clone()];
    if let Some(name) = path.file_name() {
        let directories = programs.unwrap_or_default().iter();
        candidates.extend(directories.map(|directory| directory.join(name)));
    }
    for fallback in &spec.fallbacks {
        candidates.push(fallback.fill(attributes)?);
    }
    if candidates.len() > 1 {
        // If the look-up of a path fails, the file may be there. The path is chosen, and the failure
        // is reported for it.
        let is_there = |path: &&PathBuf| {
            let place = driver.view.place(path);
            matches!(place, Ok(Some(_)) | Err(OwnershipError::Open { .. }))
        };
        // Some hosts install a wrapper script under the name of a program. The script calls the
        // program by a path that containers do not have, so a path without a script is preferred.
        let is_usable =
            |path: &&PathBuf| is_there(path) && !(binary && driver.view.is_script(path));
        let chosen = candidates.iter().find(is_usable);
        let chosen = chosen.or_else(|| candidates.iter().find(is_there));
        path = chosen.unwrap_or(&candidates[0]).clone();
    }
    let optional = optional || spec.optional || binary;
    let mut file = file_at(&path, &[spec.kind], optional, driver);
    if let Presence::Found(source) = &mut file {
        source.writable = spec.writable && source.kind == FileKind::Socket;
    }
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
        kinds.contains(&kind).then_some(FileSource {
            path,
            kind,
            writable: false,
        })
    })
}

pub(super) fn directory(
    spec: &class::Directory,
    attributes: &Attributes,
    optional: bool,
    driver: DriverRoot<'_>,
) -> Result<FoundDirectory, DeviceError> {
    let (path, container) = fill_both_paths(&spec.path, spec.container_path.as_ref(), attributes)?;
    let directory = directory_at(&path, optional || spec.optional, driver);
    let mut libraries = Vec::new();
    if spec.libraries && matches!(directory, Presence::Found(_)) {
        libraries = driver
            .view
            .list_matching(&path, &|name| {
                class::SoName::try_from(name.to_owned()).is_ok()
            })
            .map_err(|error| DeviceError::io(&path, &error))?;
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

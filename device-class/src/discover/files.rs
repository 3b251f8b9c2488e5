//! Looks up the files and directories of a class on a host.

use std::path::{Path, PathBuf};

use super::DeviceError;
use super::driver_root::DriverRoot;
use super::found::{FileSource, FoundDirectory, FoundFile, PathLookup};
use super::paths::{fill_both_paths, look_up_path};
use crate::class::{self, FileKind};
use crate::host::Entry;
use crate::ownership::OwnershipError;
use crate::template::Attributes;

/// Looks up a file of a class. If `program_directories` is set, the file is a program. A program is
/// also searched in these directories. It is always optional, because many hosts do not have all
/// programs of a driver.
pub(super) fn find_file(
    spec: &class::File,
    program_directories: Option<&[PathBuf]>,
    attributes: &Attributes,
    is_optional: bool,
    driver_root: DriverRoot<'_>,
) -> Result<FoundFile, DeviceError> {
    let (mut path, container_path) =
        fill_both_paths(&spec.path, spec.container_path.as_ref(), attributes)?;
    let is_program = program_directories.is_some();
    let mut candidates = vec![path.clone()];
    if let Some(name) = path.file_name() {
        let directories = program_directories.unwrap_or_default().iter();
        candidates.extend(directories.map(|directory| directory.join(name)));
    }
    for fallback in &spec.fallbacks {
        candidates.push(fallback.fill(attributes)?);
    }
    if candidates.len() > 1 {
        // If the look-up of a path fails, the file may still exist. So the path counts as existing,
        // and `look_up_file` below reports the error.
        let may_exist = |path: &&PathBuf| {
            let host_file = driver_root.view.find_trusted_file(path);
            matches!(host_file, Ok(Some(_)) | Err(OwnershipError::Open { .. }))
        };
        // Some hosts have a wrapper script with the name of the program. It calls the program at a
        // path that does not exist in containers. So a file that is not a script is preferred.
        let is_usable =
            |path: &&PathBuf| may_exist(path) && !(is_program && driver_root.view.is_script(path));
        let selected_path = candidates.iter().find(is_usable);
        let selected_path = selected_path.or_else(|| candidates.iter().find(may_exist));
        path = selected_path.unwrap_or(&candidates[0]).clone();
    }
    let is_optional = is_optional || spec.optional || is_program;
    let mut file = look_up_file(&path, &[spec.kind], is_optional, driver_root);
    if let PathLookup::Found(source) = &mut file {
        source.is_writable = spec.writable && source.kind == FileKind::Socket;
        source.is_image_module = spec.is_image_module;
    }
    Ok(FoundFile {
        path,
        container_path,
        is_program,
        is_optional,
        file,
    })
}

pub(super) fn look_up_file(
    path: &Path,
    kinds: &[FileKind],
    is_optional: bool,
    driver_root: DriverRoot<'_>,
) -> PathLookup<FileSource> {
    let expected_type = match kinds {
        [FileKind::Socket] => "a socket",
        _ => "a regular file",
    };
    look_up_path(
        path,
        is_optional,
        expected_type,
        driver_root.view,
        |host_file| {
            let kind = match host_file.entry {
                Entry::File => FileKind::File,
                Entry::Socket => FileKind::Socket,
                _ => return None,
            };
            let path = driver_root.to_host_path(host_file.path);
            kinds.contains(&kind).then_some(FileSource {
                path,
                kind,
                is_writable: false,
                is_image_module: false,
            })
        },
    )
}

pub(super) fn find_directory(
    spec: &class::Directory,
    attributes: &Attributes,
    is_optional: bool,
    driver_root: DriverRoot<'_>,
) -> Result<FoundDirectory, DeviceError> {
    let (path, container_path) =
        fill_both_paths(&spec.path, spec.container_path.as_ref(), attributes)?;
    let directory = look_up_directory(&path, is_optional || spec.optional, driver_root);
    let mut libraries = Vec::new();
    if spec.libraries && matches!(directory, PathLookup::Found(_)) {
        libraries = driver_root
            .view
            .list_matching(&path, &|name| {
                class::SoName::try_from(name.to_owned()).is_ok()
            })
            .map_err(|error| DeviceError::io(&path, &error))?;
        libraries.sort_unstable();
    }
    Ok(FoundDirectory {
        is_optional: is_optional || spec.optional,
        path,
        container_path,
        is_writable: spec.writable,
        libraries,
        directory,
    })
}

pub(super) fn look_up_directory(
    path: &Path,
    is_optional: bool,
    driver_root: DriverRoot<'_>,
) -> PathLookup<PathBuf> {
    look_up_path(
        path,
        is_optional,
        "a directory",
        driver_root.view,
        |host_file| {
            (host_file.entry == Entry::Directory).then(|| driver_root.to_host_path(host_file.path))
        },
    )
}

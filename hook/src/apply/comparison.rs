//! Compares a running container to an injection plan.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use device_class::device::DeviceNumber;
use injection_plan::plan::Action;

use crate::container::{Handle, device_number};

/// A function that opens a path in the container. It returns `None` if the path does not
/// exist.
pub(crate) type OpenFile<'a> = &'a dyn Fn(&Path) -> Result<Option<Handle>, String>;

/// Returns the path of the file of an injection step that the container lacks, or a description of
/// a wrong node. Returns `None` if nothing is missing. Preparations, device rules, and steps that
/// affect only some programs of the container cannot be examined and count as done.
pub(crate) fn find_missing_file(
    action: &Action,
    open_file: OpenFile<'_>,
) -> Result<Option<String>, String> {
    let path = match action {
        Action::Node { mount, number, .. } => {
            return describe_missing_node(&mount.path, *number, open_file);
        }
        Action::MakeNode { path, number, .. } => {
            return describe_missing_node(path, *number, open_file);
        }
        Action::File(mount) | Action::Directory(mount) => &mount.path,
        Action::Library { mount, .. } => &mount.path,
        Action::Link { path, .. } => path,
        Action::Prepare(_)
        | Action::Allow { .. }
        | Action::NetInterfaces { .. }
        | Action::Mask { .. }
        | Action::Loader { .. } => return Ok(None),
    };
    let there = open_file(path)?.is_some();
    Ok((!there).then(|| path.display().to_string()))
}

/// Returns whether the container has another file than the host has now. After an update of a
/// driver, a container that runs still has the old files. Returns `None` if there is no file
/// to compare.
pub(crate) fn is_outdated(
    action: &Action,
    host_root: &Path,
    open_file: OpenFile<'_>,
) -> Option<bool> {
    match action {
        Action::File(mount) | Action::Directory(mount) => {
            is_other_file(&mount.source, &mount.path, host_root, open_file)
        }
        Action::Library { mount, links, .. } => {
            // A library of another version has another file name, but the links keep their
            // names.
            let links = links.iter().map(|link| mount.path.with_file_name(link));
            let mut paths = std::iter::once(mount.path.clone()).chain(links);
            paths.find_map(|path| is_other_file(&mount.source, &path, host_root, open_file))
        }
        _ => None,
    }
}

/// Returns whether the container has another file at `path` than the host has at `source` now.
/// Returns `None` if one of them does not exist.
pub(crate) fn is_other_file(
    source: &Path,
    path: &Path,
    host_root: &Path,
    open_file: OpenFile<'_>,
) -> Option<bool> {
    let below = source.strip_prefix("/").unwrap_or(source);
    let now = fs::metadata(host_root.join(below)).ok()?;
    let found = open_file(path).ok()??;
    let stat = found.stat();
    Some((stat.st_dev, stat.st_ino) != (now.dev(), now.ino()))
}

fn describe_missing_node(
    path: &Path,
    number: DeviceNumber,
    open_file: OpenFile<'_>,
) -> Result<Option<String>, String> {
    let Some(handle) = open_file(path)? else {
        return Ok(Some(path.display().to_string()));
    };
    let found = device_number(&handle);
    Ok((found != Some(number)).then(|| {
        let kind = handle.kind();
        match found {
            Some(found) => format!("{} is {found}, expected {number}", path.display()),
            None => format!("{} is {kind}, not a device node", path.display()),
        }
    }))
}

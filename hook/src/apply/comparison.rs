//! Compares the files of a running container with the files of an injection plan and of the host.
//! Commands use the result to report or replace missing and outdated files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use device_class::device::DeviceNumber;
use injection_plan::plan::Action;

use crate::container::{Handle, find_device_number};

/// A function that opens a path in the container. It returns `None` if the path does not exist, and
/// the reason as text if the path cannot be opened.
pub type FileOpener<'a> = &'a dyn Fn(&Path) -> Result<Option<Handle>, String>;

/// Checks whether the container has the file that an injection step creates. Returns the path of
/// the file if it is missing. If another file is at the path of a device node, returns a
/// description, such as `/dev/npu0 is c 1:3, expected c 1:5`. Returns `None` if nothing is missing.
///
/// Steps that create no file, and masks and loader configurations, are not examined. For them the
/// function always returns `None`.
pub fn find_missing_file(
    action: &Action,
    open_file: FileOpener<'_>,
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
    let exists = open_file(path)?.is_some();
    Ok((!exists).then(|| path.display().to_string()))
}

/// Reports whether the file of an injection step is outdated in the container. When an update
/// replaces a file on the host, a bind mount in a running container still shows the old file.
/// Returns `None` if the step has no file to compare, or if the file is missing on the host or in
/// the container.
pub fn is_outdated(action: &Action, host_root: &Path, open_file: FileOpener<'_>) -> Option<bool> {
    match action {
        Action::File(mount) | Action::Directory(mount) => {
            differs_from_host_file(&mount.source, &mount.path, host_root, open_file)
        }
        Action::Library { mount, links, .. } => {
            // After an update of the driver, a library may have another file name (`libx.so.550.1`
            // instead of `libx.so.535.54`), but its links have the same names (`libx.so.1`). So the
            // targets of the links are compared as well.
            let links = links.iter().map(|link| mount.path.with_file_name(link));
            let mut paths = std::iter::once(mount.path.clone()).chain(links);
            paths
                .find_map(|path| differs_from_host_file(&mount.source, &path, host_root, open_file))
        }
        _ => None,
    }
}

/// Reports whether `host_path` on the host and `container_path` in the container lead to different
/// files, by their device and inode numbers. Returns `None` if one of the two files does not exist
/// or cannot be opened.
pub fn differs_from_host_file(
    host_path: &Path,
    container_path: &Path,
    host_root: &Path,
    open_file: FileOpener<'_>,
) -> Option<bool> {
    let relative_path = host_path.strip_prefix("/").unwrap_or(host_path);
    let host_file = fs::metadata(host_root.join(relative_path)).ok()?;
    let container_file = open_file(container_path).ok()??;
    let stat = container_file.stat();
    Some((stat.st_dev, stat.st_ino) != (host_file.dev(), host_file.ino()))
}

fn describe_missing_node(
    path: &Path,
    number: DeviceNumber,
    open_file: FileOpener<'_>,
) -> Result<Option<String>, String> {
    let Some(handle) = open_file(path)? else {
        return Ok(Some(path.display().to_string()));
    };
    let found_number = find_device_number(&handle);
    Ok((found_number != Some(number)).then(|| {
        let kind = handle.kind();
        match found_number {
            Some(found_number) => {
                format!("{} is {found_number}, expected {number}", path.display())
            }
            None => format!("{} is {kind}, not a device node", path.display()),
        }
    }))
}

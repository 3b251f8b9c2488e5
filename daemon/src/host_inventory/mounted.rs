//! Checks whether the host paths that a class reads are mounted in this container. A container has
//! only some of the host's directories below `host_root`. If a class reads a file in another
//! directory, the plugin would find other devices than the hook.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use device_class::DeviceClass;

/// A host path that a class reads, but that is not mounted in this process's container.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnmountedPath {
    pub(crate) path: String,
    /// Whether the class searches for devices at this path. If so, the scan cannot find out whether
    /// the host has devices of the class.
    pub(crate) is_searched: bool,
}

/// Returns the first path of a class that is not mounted below `host_root`. The paths at which the
/// class searches for devices are checked first. Returns `None` if all paths are mounted, or if
/// `host_root` is the root directory of the host itself.
pub(crate) fn find_unmounted_path(class: &DeviceClass, host_root: &Path) -> Option<UnmountedPath> {
    let get_device_number = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    if !has_host_mounts_below(host_root, &list_entry_paths(host_root), get_device_number) {
        return None;
    }
    let searched_paths = class.spec.list_searched_paths().into_iter();
    let searched_paths = searched_paths.map(|path| (path, true));
    let read_paths = class.spec.list_read_paths().into_iter();
    let mut paths = searched_paths.chain(read_paths.map(|path| (path, false)));
    let (path, is_searched) =
        paths.find(|(path, _)| !is_mounted(host_root, Path::new(path), get_device_number))?;
    Some(UnmountedPath { path, is_searched })
}

fn list_entry_paths(host_root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(host_root).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect()
}

/// Returns whether `host_root` is a directory of the container's own file system, and directories
/// of the host are mounted below it. Returns `false` if the host's root directory itself is mounted
/// at `host_root`. `get_device_number` returns the device number of the file system that contains a
/// path.
fn has_host_mounts_below(
    host_root: &Path,
    entries: &[PathBuf],
    get_device_number: impl Fn(&Path) -> Option<u64>,
) -> bool {
    let Some(parent) = host_root.parent() else {
        return false;
    };
    let root_device = get_device_number(host_root);
    let mut devices = entries.iter().map(|path| get_device_number(path));
    root_device == get_device_number(parent)
        && devices.any(|device| device.is_some() && device != root_device)
}

/// Returns whether a path is inside a mount of the host: a component of the path is on another file
/// system than `host_root`. The container's own file system has only the directories above the
/// mounts. The end of the path need not exist.
fn is_mounted(
    host_root: &Path,
    path: &Path,
    get_device_number: impl Fn(&Path) -> Option<u64>,
) -> bool {
    let root_device = get_device_number(host_root);
    let mut prefix = host_root.to_owned();
    for component in path.components() {
        let Component::Normal(name) = component else {
            continue;
        };
        prefix.push(name);
        match get_device_number(&prefix) {
            None => return false,
            device if device != root_device => return true,
            Some(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the file systems of paths in a container like that of the DaemonSet.
    fn device(path: &Path) -> Option<u64> {
        let known = [
            ("/", 1),
            ("/host", 1),
            ("/host/dev", 2),
            ("/host/proc", 1),
            ("/host/proc/driver", 3),
            ("/host/etc", 1),
            ("/host/etc/boathook", 4),
            ("/whole", 5),
            ("/whole/dev", 2),
        ];
        let found = known.iter().find(|(known, _)| Path::new(known) == path);
        found.map(|(_, device)| *device)
    }

    #[test]
    fn only_what_is_mounted_can_be_read() {
        let root = Path::new("/host");
        let directories = ["/host/dev", "/host/proc"].map(PathBuf::from);
        assert!(has_host_mounts_below(root, &directories, device));
        // The host's whole root is mounted.
        let whole = [PathBuf::from("/whole/dev")];
        assert!(!has_host_mounts_below(Path::new("/whole"), &whole, device));
        assert!(!has_host_mounts_below(Path::new("/"), &directories, device));
        for (path, mounted) in [
            ("/dev", true),
            ("/dev/chip0", true),
            ("/proc/driver/chip", true),
            ("/proc/devices", false),
            ("/run/chip", false),
            ("/etc/chip", false),
            ("/etc/boathook/x", true),
        ] {
            assert_eq!(is_mounted(root, Path::new(path), device), mounted, "{path}");
        }
    }
}

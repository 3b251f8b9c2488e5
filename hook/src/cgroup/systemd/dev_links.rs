//! Creates the links `/dev/char/MAJOR:MINOR` and `/dev/block/MAJOR:MINOR`. `DeviceAllow=` of a
//! systemd unit identifies devices by these links.
//!
//! Since version 240, systemd takes the device number from the name of such a link. Older versions
//! read the device node to which the link leads, so the link must exist. udev creates the links.
//! But it creates none for a driver that does not announce its device nodes in sysfs.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::cgroup::rule::{DeviceKind, DeviceRule};

/// The first version of systemd that takes the device number from the name of a link. From this
/// version on, the link need not exist.
pub(super) const FIRST_VERSION_WITHOUT_LINK_LOOKUP: u32 = 240;

/// The maximum depth below `/dev` at which a device node is searched, such as 2 for
/// `/dev/dri/renderD128`.
const MAX_SEARCH_DEPTH: usize = 3;
/// The maximum number of directory entries that a search for a device node reads. At the limit, the
/// search ends without a result.
const MAX_SEARCHED_ENTRIES: usize = 20_000;

/// Returns the path that identifies the rule's device in `DeviceAllow=`, such as
/// `/dev/char/10:183`.
pub(super) fn device_allow_path(rule: &DeviceRule) -> String {
    let kind = match rule.kind() {
        DeviceKind::Block => "block",
        DeviceKind::Character => "char",
    };
    format!("/dev/{kind}/{}:{}", rule.major(), rule.minor())
}

/// Reports whether the link for the rule's device, such as `/dev/char/10:183`, exists and leads to
/// a node of this device. `dev_dir` is the host's `/dev`.
pub(super) fn link_exists(dev_dir: &Path, rule: &DeviceRule) -> bool {
    fs::metadata(resolve_link_path(dev_dir, rule)).is_ok_and(|metadata| is_device(&metadata, rule))
}

/// Creates the link for the rule's device. The link leads to the node below `dev_dir` that has the
/// device number of the rule. Returns the path of the link. Fails if no such node is found.
pub(super) fn create_link(dev_dir: &Path, rule: &DeviceRule) -> io::Result<PathBuf> {
    let link_path = resolve_link_path(dev_dir, rule);
    let node_path = find_node(dev_dir, rule).ok_or_else(|| {
        let message = format!("no node {rule} under {}", dev_dir.display());
        io::Error::new(io::ErrorKind::NotFound, message)
    })?;
    if let Some(parent) = link_path.parent() {
        fs::create_dir_all(parent)?;
    }
    // The link is relative, as udev's links are. It leads from `/dev/char` or `/dev/block` up to
    // `/dev`.
    let target = Path::new("..").join(node_path.strip_prefix(dev_dir).unwrap_or(&node_path));
    match symlink(target, &link_path) {
        Err(error)
            if error.kind() == io::ErrorKind::AlreadyExists && link_exists(dev_dir, rule) =>
        {
            Ok(link_path)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(link_path),
    }
}

fn resolve_link_path(dev_dir: &Path, rule: &DeviceRule) -> PathBuf {
    let path = device_allow_path(rule);
    dev_dir.join(path.trim_start_matches("/dev/"))
}

fn find_node(dev_dir: &Path, rule: &DeviceRule) -> Option<PathBuf> {
    let mut remaining_entries = MAX_SEARCHED_ENTRIES;
    let mut directories = vec![dev_dir.to_owned()];
    for _ in 0..MAX_SEARCH_DEPTH {
        let mut subdirectories = Vec::new();
        for entry in directories
            .iter()
            .filter_map(|dir| fs::read_dir(dir).ok())
            .flatten()
        {
            remaining_entries = remaining_entries.checked_sub(1)?;
            let Ok(entry) = entry else { continue };
            match entry.metadata() {
                Ok(metadata) if is_device(&metadata, rule) => return Some(entry.path()),
                Ok(metadata) if metadata.is_dir() => subdirectories.push(entry.path()),
                _ => {}
            }
        }
        directories = subdirectories;
    }
    None
}

fn is_device(metadata: &fs::Metadata, rule: &DeviceRule) -> bool {
    let has_kind = match rule.kind() {
        DeviceKind::Block => metadata.file_type().is_block_device(),
        DeviceKind::Character => metadata.file_type().is_char_device(),
    };
    let number = libc::makedev(rule.major(), rule.minor());
    has_kind && metadata.rdev() == number
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::{Mode, SFlag, mknod};

    use super::*;
    use crate::cgroup::rule::Access;
    use crate::cgroup::tests::prober::skip;

    fn rule(kind: DeviceKind, major: u32, minor: u32) -> DeviceRule {
        DeviceRule::new(kind, major, minor, Access::READ)
    }

    #[test]
    fn names_links_as_udev_does() {
        assert_eq!(
            device_allow_path(&rule(DeviceKind::Character, 10, 183)),
            "/dev/char/10:183"
        );
        assert_eq!(
            device_allow_path(&rule(DeviceKind::Block, 8, 0)),
            "/dev/block/8:0"
        );
    }

    /// The test uses nodes of the real `/dev`, because only root can create nodes.
    #[test]
    fn finds_nodes_by_number() {
        let null = rule(DeviceKind::Character, 1, 3);
        let found = find_node(Path::new("/dev"), &null).unwrap();
        assert!(is_device(&fs::metadata(found).unwrap(), &null));
        assert_eq!(
            find_node(Path::new("/dev"), &rule(DeviceKind::Block, 1, 3)),
            None
        );
        assert_eq!(find_node(Path::new("/nonexistent"), &null), None);
    }

    #[test]
    fn knows_a_link_from_what_only_looks_like_one() {
        let dev_dir = tempfile::tempdir().unwrap();
        let null = rule(DeviceKind::Character, 1, 3);
        fs::create_dir(dev_dir.path().join("char")).unwrap();
        let link_path = dev_dir.path().join("char/1:3");

        assert!(!link_exists(dev_dir.path(), &null));
        symlink("/dev/zero", &link_path).unwrap();
        assert!(!link_exists(dev_dir.path(), &null));
        fs::remove_file(&link_path).unwrap();
        symlink("/dev/null", &link_path).unwrap();
        assert!(link_exists(dev_dir.path(), &null));
    }

    #[test]
    fn makes_links_as_udev_does() {
        let dev_dir = tempfile::tempdir().unwrap();
        let node_path = dev_dir.path().join("accel/a0");
        fs::create_dir(node_path.parent().unwrap()).unwrap();
        let number = libc::makedev(1, 3);
        if let Err(errno) = mknod(&node_path, SFlag::S_IFCHR, Mode::S_IRUSR, number) {
            return skip(&format!("cannot make nodes: {errno}"));
        }
        let null = rule(DeviceKind::Character, 1, 3);

        let link_path = create_link(dev_dir.path(), &null).unwrap();
        assert_eq!(link_path, dev_dir.path().join("char/1:3"));
        assert_eq!(fs::read_link(link_path).unwrap(), Path::new("../accel/a0"));
        assert!(link_exists(dev_dir.path(), &null));
    }

    #[test]
    fn says_which_node_is_missing() {
        let dev_dir = tempfile::tempdir().unwrap();
        let error = create_link(dev_dir.path(), &rule(DeviceKind::Character, 1, 3)).unwrap_err();
        let expected = format!("no node c 1:3 r under {}", dev_dir.path().display());
        assert_eq!(error.to_string(), expected);
    }
}

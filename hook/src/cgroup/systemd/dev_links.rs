//! The links `/dev/char/MAJOR:MINOR` and `/dev/block/MAJOR:MINOR`, by which units name
//! devices.
//!
//! systemd takes the device number from the name of the link since version 240. Older versions
//! read the node to which the link leads. udev creates these links, except for drivers that do
//! not announce their nodes in sysfs.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::cgroup::rule::{DeviceKind, DeviceRule};

/// The first version of systemd that needs no links.
pub(super) const FIRST_VERSION_WITHOUT_LINKS: u32 = 240;

/// The maximum depth below `/dev`, and the maximum number of entries, in which a node is
/// searched.
const SEARCH_DEPTH: usize = 3;
const SEARCH_LIMIT: usize = 20_000;

/// Returns the path of the link, as it is passed to systemd.
pub(super) fn link_path(rule: &DeviceRule) -> String {
    let kind = match rule.kind() {
        DeviceKind::Block => "block",
        DeviceKind::Character => "char",
    };
    format!("/dev/{kind}/{}:{}", rule.major(), rule.minor())
}

/// Returns whether the link exists. `dev` is the host's `/dev`.
pub(super) fn link_exists(dev: &Path, rule: &DeviceRule) -> bool {
    fs::metadata(link_below(dev, rule)).is_ok_and(|node| is_device(&node, rule))
}

/// Creates a link to a node in `dev` with the device number of the rule, and returns the path
/// of the link.
pub(super) fn create_link(dev: &Path, rule: &DeviceRule) -> io::Result<PathBuf> {
    let link = link_below(dev, rule);
    let node = find_node(dev, rule).ok_or_else(|| {
        let message = format!("no node {rule} under {}", dev.display());
        io::Error::new(io::ErrorKind::NotFound, message)
    })?;
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent)?;
    }
    // The link is relative, as udev creates it: it leads from `/dev/char` back to `/dev`.
    let target = Path::new("..").join(node.strip_prefix(dev).unwrap_or(&node));
    match symlink(target, &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && link_exists(dev, rule) => {
            Ok(link)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(link),
    }
}

fn link_below(dev: &Path, rule: &DeviceRule) -> PathBuf {
    let path = link_path(rule);
    dev.join(path.trim_start_matches("/dev/"))
}

fn find_node(dev: &Path, rule: &DeviceRule) -> Option<PathBuf> {
    let mut entries_left = SEARCH_LIMIT;
    let mut level = vec![dev.to_owned()];
    for _ in 0..SEARCH_DEPTH {
        let mut below = Vec::new();
        for entry in level
            .iter()
            .filter_map(|dir| fs::read_dir(dir).ok())
            .flatten()
        {
            entries_left = entries_left.checked_sub(1)?;
            let Ok(entry) = entry else { continue };
            match entry.metadata() {
                Ok(found) if is_device(&found, rule) => return Some(entry.path()),
                Ok(found) if found.is_dir() => below.push(entry.path()),
                _ => {}
            }
        }
        level = below;
    }
    None
}

fn is_device(node: &fs::Metadata, rule: &DeviceRule) -> bool {
    let has_kind = match rule.kind() {
        DeviceKind::Block => node.file_type().is_block_device(),
        DeviceKind::Character => node.file_type().is_char_device(),
    };
    let number = libc::makedev(rule.major(), rule.minor());
    has_kind && node.rdev() == number
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
            link_path(&rule(DeviceKind::Character, 10, 183)),
            "/dev/char/10:183"
        );
        assert_eq!(link_path(&rule(DeviceKind::Block, 8, 0)), "/dev/block/8:0");
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
        let dev = tempfile::tempdir().unwrap();
        let null = rule(DeviceKind::Character, 1, 3);
        fs::create_dir(dev.path().join("char")).unwrap();
        let link = dev.path().join("char/1:3");

        assert!(!link_exists(dev.path(), &null));
        symlink("/dev/zero", &link).unwrap();
        assert!(!link_exists(dev.path(), &null));
        fs::remove_file(&link).unwrap();
        symlink("/dev/null", &link).unwrap();
        assert!(link_exists(dev.path(), &null));
    }

    #[test]
    fn makes_links_as_udev_does() {
        let dev = tempfile::tempdir().unwrap();
        let node = dev.path().join("accel/a0");
        fs::create_dir(node.parent().unwrap()).unwrap();
        let number = libc::makedev(1, 3);
        if let Err(errno) = mknod(&node, SFlag::S_IFCHR, Mode::S_IRUSR, number) {
            return skip(&format!("cannot make nodes: {errno}"));
        }
        let null = rule(DeviceKind::Character, 1, 3);

        let link = create_link(dev.path(), &null).unwrap();
        assert_eq!(link, dev.path().join("char/1:3"));
        assert_eq!(fs::read_link(link).unwrap(), Path::new("../accel/a0"));
        assert!(link_exists(dev.path(), &null));
    }

    #[test]
    fn says_which_node_is_missing() {
        let dev = tempfile::tempdir().unwrap();
        let error = create_link(dev.path(), &rule(DeviceKind::Character, 1, 3)).unwrap_err();
        let expected = format!("no node c 1:3 r under {}", dev.path().display());
        assert_eq!(error.to_string(), expected);
    }
}

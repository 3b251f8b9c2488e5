//! Where the hierarchies of cgroups are mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::membership::Hierarchy;
use crate::mountinfo::MountLine;

/// A mount of a hierarchy, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CgroupMount {
    /// The cgroup that is seen at the mount point.
    root: PathBuf,
    /// The mount point.
    pub(super) point: PathBuf,
}

impl CgroupMount {
    /// The directory of a cgroup, if it is at or under the mount's root.
    pub(super) fn dir_of(&self, cgroup: &Path) -> Option<PathBuf> {
        let below = cgroup.strip_prefix(&self.root).ok()?;
        // A cgroup outside of our cgroup namespace is shown as `/../x`.
        let visible = below
            .components()
            .all(|component| matches!(component, Component::Normal(_)));
        visible.then(|| self.point.join(below))
    }
}

/// The mounts of `hierarchy`, the one that shows most of it first; of equal
/// ones the latest, since it may cover the others.
pub(super) fn mounts(content: &[u8], hierarchy: Hierarchy) -> Vec<CgroupMount> {
    let mut mounts: Vec<_> = content
        .split(|byte| *byte == b'\n')
        .rev()
        .filter_map(|line| mount(line, hierarchy))
        .collect();
    mounts.sort_by_key(|mount| mount.root.components().count());
    mounts
}

/// A line that is a mount of `hierarchy`.
fn mount(line: &[u8], hierarchy: Hierarchy) -> Option<CgroupMount> {
    let line = MountLine::split(line)?;
    let found = match hierarchy {
        Hierarchy::Unified => line.fs_type == b"cgroup2",
        Hierarchy::V1Devices => {
            let mut options = line.super_options.split(|byte| *byte == b',');
            line.fs_type == b"cgroup" && options.any(|option| option == b"devices")
        }
    };
    found.then(|| CgroupMount {
        root: unescape(line.root),
        point: unescape(line.point),
    })
}

/// Blanks and backslashes in paths are written `\040` and so on, in octal.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    loop {
        rest = match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                tail @ ..,
            ] => {
                path.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                tail
            }
            [byte, tail @ ..] => {
                path.push(*byte);
                tail
            }
            [] => return PathBuf::from(OsString::from_vec(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime shared:9 - cgroup cgroup rw,devices
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
90 80 0:33 /docker/a\\040b /mnt/a\\134b\\040c rw master:3 propagate_from:2 - cgroup cgroup rw,freezer,devices
";

    fn found(content: &str, hierarchy: Hierarchy) -> Vec<(String, String)> {
        let text = |path: PathBuf| path.into_os_string().into_string().unwrap();
        mounts(content.as_bytes(), hierarchy)
            .into_iter()
            .map(|mount| (text(mount.root), text(mount.point)))
            .collect()
    }

    fn pair(root: &str, point: &str) -> (String, String) {
        (root.to_owned(), point.to_owned())
    }

    #[test]
    fn finds_the_mounts_of_each_hierarchy() {
        assert_eq!(
            found(HYBRID, Hierarchy::V1Devices),
            [
                pair("/", "/sys/fs/cgroup/devices"),
                pair("/docker/a b", "/mnt/a\\b c"),
            ]
        );
        assert_eq!(
            found(HYBRID, Hierarchy::Unified),
            [pair("/", "/sys/fs/cgroup/unified")]
        );
    }

    #[test]
    fn prefers_the_latest_of_equal_mounts() {
        let twice = "1 0 0:1 / /first rw - cgroup2 none rw\n2 0 0:1 / /second rw - cgroup2 none rw";
        assert_eq!(
            found(twice, Hierarchy::Unified),
            [pair("/", "/second"), pair("/", "/first")]
        );
    }

    #[test]
    fn passes_over_lines_it_does_not_know() {
        for line in [
            "",
            " ",
            "1 2 3 4 5 6",
            "1 2 3 / /x rw - cgroup2",
            "- - - - - -",
        ] {
            assert_eq!(found(line, Hierarchy::Unified), [], "{line:?}");
        }
    }

    #[test]
    fn maps_cgroups_to_directories() {
        for (root, cgroup, expected) in [
            ("/", "/", Some("/m")),
            ("/", "/kubepods/pod1", Some("/m/kubepods/pod1")),
            ("/docker/a", "/docker/a/b", Some("/m/b")),
            ("/docker/a", "/docker/a", Some("/m")),
            ("/docker/a", "/docker/ab", None),
            ("/docker/a", "/", None),
            ("/", "/../b", None),
            ("/..", "/../b", Some("/m/b")),
            ("/", "/a/../../b", None),
        ] {
            let mount = CgroupMount {
                root: root.into(),
                point: "/m".into(),
            };
            let dir = mount.dir_of(Path::new(cgroup));
            assert_eq!(
                dir.as_deref(),
                expected.map(Path::new),
                "{cgroup} under {root}"
            );
        }
    }

    #[test]
    fn unescapes_octal_and_nothing_else() {
        for (field, path) in [
            (r"/a\040b", "/a b"),
            (r"\011\012\134\043", "\t\n\\#"),
            (r"/a\04", r"/a\04"),
            (r"/a\", r"/a\"),
            (r"/a\888", r"/a\888"),
        ] {
            assert_eq!(unescape(field.as_bytes()), Path::new(path), "{field}");
        }
    }
}

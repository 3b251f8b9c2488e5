//! Finds the cgroup that controls the devices of a process, on hosts with cgroup v1 or v2.

use device_class::collect_by_insertion;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::error::CgroupError;
use super::membership::{self, Hierarchy};
use super::{CgroupDir, DeviceCgroup};
use crate::mountinfo::{MAX_MOUNTINFO_BYTES, MountLine};

/// The maximum size of `/proc/PID/cgroup` in bytes. The file has about 15 lines, one for each
/// hierarchy. A line has at most about 4 KiB (PATH_MAX).
const MAX_MEMBERSHIP_BYTES: u64 = 256 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelMountPaths {
    /// The mount point of a procfs that shows the PID namespace of the host.
    pub proc_path: PathBuf,
    /// The path at which cgroup v2 is mounted if it controls devices. On a host where cgroup v1
    /// controls devices, another file system is mounted there, such as a tmpfs.
    pub cgroup_path: PathBuf,
}

impl Default for KernelMountPaths {
    fn default() -> Self {
        Self {
            proc_path: "/proc".into(),
            cgroup_path: "/sys/fs/cgroup".into(),
        }
    }
}

impl DeviceCgroup {
    /// Finds the cgroup that controls the devices of a process. Returns `None` if the kernel of the
    /// host has no device controller.
    ///
    /// # Errors
    ///
    /// Fails if `/proc` cannot be read, or if no mount of the hierarchy shows the cgroup of the
    /// process.
    pub fn from_pid(pid: i32) -> Result<Option<Self>, CgroupError> {
        Self::find(&KernelMountPaths::default(), pid)
    }

    /// Finds the cgroup of a process as [`Self::from_pid`] does. `membership` is the content of
    /// `/proc/PID/cgroup`, which the caller has already read.
    pub fn from_membership(membership: &[u8]) -> Result<Option<Self>, CgroupError> {
        Self::find_by_membership(&KernelMountPaths::default(), membership)
    }

    /// Returns the cgroup at `path` in the hierarchy that controls devices. The cgroup need not
    /// exist. Returns `None` if the kernel of the host has no device controller.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`Self::from_pid`].
    pub(crate) fn from_path(path: &Path) -> Result<Option<Self>, CgroupError> {
        Self::find_by_path(&KernelMountPaths::default(), |_| Some(path))
    }

    /// Does the work of [`Self::from_pid`] with the mount points in `mounts`, because tests pass
    /// directories of their own.
    pub(super) fn find(mounts: &KernelMountPaths, pid: i32) -> Result<Option<Self>, CgroupError> {
        let path = mounts.proc_path.join(pid.to_string()).join("cgroup");
        Self::find_by_membership(mounts, &read_file(&path, MAX_MEMBERSHIP_BYTES)?)
    }

    fn find_by_membership(
        mounts: &KernelMountPaths,
        membership: &[u8],
    ) -> Result<Option<Self>, CgroupError> {
        Self::find_by_path(mounts, |hierarchy| {
            membership::parse_cgroup_path(membership, hierarchy)
        })
    }

    fn find_by_path<'p>(
        mounts: &KernelMountPaths,
        path: impl FnOnce(Hierarchy) -> Option<&'p Path>,
    ) -> Result<Option<Self>, CgroupError> {
        let mountinfo = read_file(
            &mounts.proc_path.join("thread-self/mountinfo"),
            MAX_MOUNTINFO_BYTES,
        )?;
        let (hierarchy, to_version_variant): (_, fn(CgroupDir) -> Self) =
            if is_cgroup2(&mounts.cgroup_path) {
                (Hierarchy::Unified, Self::V2)
            } else {
                (Hierarchy::V1Devices, Self::V1)
            };
        let cgroup_dir = path(hierarchy).map(|path| find_directory(path, &mountinfo, hierarchy));
        Ok(cgroup_dir.transpose()?.map(to_version_variant))
    }
}

/// Reports whether cgroup v2 is mounted at `path`. runc and crun make the same test to find out
/// which version controls devices. On a hybrid host, cgroup v2 is mounted only at
/// `/sys/fs/cgroup/unified`, and cgroup v1 controls devices.
fn is_cgroup2(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Returns the directory of the cgroup at `path` in `hierarchy`, such as
/// `/sys/fs/cgroup/system.slice/docker-0123.scope`. Uses the first mount in `mountinfo` that shows
/// this cgroup.
fn find_directory(
    path: &Path,
    mountinfo: &[u8],
    hierarchy: Hierarchy,
) -> Result<CgroupDir, CgroupError> {
    let mounts = parse_mounts(mountinfo, hierarchy);
    let cgroup_dir = mounts.into_iter().find_map(|mount| {
        Some(CgroupDir {
            dir: mount.resolve_directory(path)?,
            mount: mount.mount_point,
            path: path.to_owned(),
        })
    });
    cgroup_dir.ok_or_else(|| CgroupError::NotVisible {
        cgroup: path.to_owned(),
    })
}

/// A mount of a cgroup hierarchy. A bind mount or a cgroup namespace can restrict the mount to one
/// cgroup and its descendants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CgroupMount {
    /// The path, in the hierarchy, of the cgroup that is visible at the mount point. It is `/` if
    /// the mount shows the whole hierarchy.
    visible_root: PathBuf,
    mount_point: PathBuf,
}

impl CgroupMount {
    /// Returns the directory in which this mount shows the cgroup at `cgroup_path`. Returns `None`
    /// if this mount does not show the cgroup.
    fn resolve_directory(&self, cgroup_path: &Path) -> Option<PathBuf> {
        let relative_path = cgroup_path.strip_prefix(&self.visible_root).ok()?;
        // A path such as `/../x` is refused. The kernel shows it for a cgroup outside of this
        // process's cgroup namespace, and no mount of the namespace shows that cgroup.
        let is_visible = relative_path
            .components()
            .all(|component| matches!(component, Component::Normal(_)));
        is_visible.then(|| self.mount_point.join(relative_path))
    }
}

/// Returns the mounts of `hierarchy`, in the order in which a caller should use them. A mount with
/// a visible root of fewer components comes first, because it shows more of the hierarchy. Of two
/// such mounts, the later one comes first, because it may hide the earlier one.
fn parse_mounts(content: &[u8], hierarchy: Hierarchy) -> Vec<CgroupMount> {
    let lines = content.split(|byte| *byte == b'\n').rev().enumerate();
    let by_depth: BTreeMap<_, _> =
        collect_by_insertion(lines.filter_map(|(index_from_end, line)| {
            let mount = parse_mount(line, hierarchy)?;
            Some((
                (mount.visible_root.components().count(), index_from_end),
                mount,
            ))
        }));
    by_depth.into_values().collect()
}

fn parse_mount(line: &[u8], hierarchy: Hierarchy) -> Option<CgroupMount> {
    let line = MountLine::split(line)?;
    let is_match = match hierarchy {
        Hierarchy::Unified => line.fs_type == b"cgroup2",
        Hierarchy::V1Devices => {
            let mut options = line.super_options.split(|byte| *byte == b',');
            line.fs_type == b"cgroup" && options.any(|option| option == b"devices")
        }
    };
    is_match.then(|| CgroupMount {
        visible_root: line.root_path(),
        mount_point: line.mount_point_path(),
    })
}

/// Reads a file of procfs or cgroupfs. Fails if the file has more than `limit` bytes.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(super) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, CgroupError> {
    let to_read_error = |source| CgroupError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(to_read_error)?;
    let mut content = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut content)
        .map_err(to_read_error)?;
    if content.len() as u64 > limit {
        return Err(CgroupError::TooLong {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNT: &str = "36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n";
    const V1_SUBTREE: &str =
        "36 31 0:33 /docker/x /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n";
    const V2_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn finds_the_directory() {
        for (membership, mountinfo, expected) in [
            ("5:devices:/a/b\n", V1_MOUNT, "/sys/fs/cgroup/devices/a/b"),
            (
                "5:devices:/docker/x/y\n",
                V1_SUBTREE,
                "/sys/fs/cgroup/devices/y",
            ),
            ("0::/a/b.scope\n", V2_MOUNT, "/sys/fs/cgroup/a/b.scope"),
            ("0::/\n", V2_MOUNT, "/sys/fs/cgroup"),
            // A hybrid host whose v1 hierarchies do not include the devices controller.
            ("5:cpu:/a\n0::/a\n", V1_MOUNT, "none"),
        ] {
            let hierarchy = match mountinfo {
                V2_MOUNT => Hierarchy::Unified,
                _ => Hierarchy::V1Devices,
            };
            let path = membership::parse_cgroup_path(membership.as_bytes(), hierarchy);
            let found =
                path.map(|path| find_directory(path, mountinfo.as_bytes(), hierarchy).unwrap());
            let dir = found.map_or("none".into(), |found| found.dir);
            assert_eq!(dir, Path::new(expected), "{membership}");
        }
    }

    #[test]
    fn says_when_the_cgroup_is_out_of_sight() {
        for (membership, mountinfo) in [
            ("5:devices:/docker/z\n", V1_SUBTREE),
            ("5:devices:/../z\n", V1_MOUNT),
            ("5:devices:/a\n", V2_MOUNT),
        ] {
            let path =
                membership::parse_cgroup_path(membership.as_bytes(), Hierarchy::V1Devices).unwrap();
            let found = find_directory(path, mountinfo.as_bytes(), Hierarchy::V1Devices);
            assert!(
                matches!(found, Err(CgroupError::NotVisible { .. })),
                "{membership}: {found:?}"
            );
        }
    }

    #[test]
    fn reads_the_given_roots() {
        let dir = tempfile::tempdir().unwrap();
        let roots = KernelMountPaths {
            proc_path: dir.path().to_owned(),
            cgroup_path: dir.path().to_owned(),
        };
        std::fs::create_dir_all(dir.path().join("7")).unwrap();
        std::fs::create_dir_all(dir.path().join("thread-self")).unwrap();
        std::fs::write(dir.path().join("7/cgroup"), "5:devices:/a/b\n").unwrap();
        std::fs::write(dir.path().join("thread-self/mountinfo"), V1_MOUNT).unwrap();

        let found = DeviceCgroup::find(&roots, 7).unwrap().unwrap();
        let DeviceCgroup::V1(cgroup) = found else {
            panic!("{found:?}");
        };
        assert_eq!(cgroup.path, Path::new("/a/b"));
        assert!(DeviceCgroup::find(&roots, 8).is_err());
    }

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime shared:9 - cgroup cgroup rw,devices
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
90 80 0:33 /docker/a\\040b /mnt/a\\134b\\040c rw master:3 propagate_from:2 - cgroup cgroup rw,freezer,devices
";

    /// Returns the roots and mount points that are found, one text for each mount.
    fn found(content: &str, hierarchy: Hierarchy) -> Vec<String> {
        let found = parse_mounts(content.as_bytes(), hierarchy).into_iter();
        let text = |mount: CgroupMount| {
            format!(
                "{} at {}",
                mount.visible_root.display(),
                mount.mount_point.display()
            )
        };
        found.map(text).collect()
    }

    #[test]
    fn finds_the_mounts_of_each_hierarchy() {
        let v1 = ["/ at /sys/fs/cgroup/devices", "/docker/a b at /mnt/a\\b c"];
        assert_eq!(found(HYBRID, Hierarchy::V1Devices), v1);
        let unified = ["/ at /sys/fs/cgroup/unified"];
        assert_eq!(found(HYBRID, Hierarchy::Unified), unified);
    }

    #[test]
    fn prefers_the_latest_of_equal_mounts() {
        let twice = "1 0 0:1 / /first rw - cgroup2 none rw\n2 0 0:1 / /second rw - cgroup2 none rw";
        let found = found(twice, Hierarchy::Unified);
        assert_eq!(found, ["/ at /second", "/ at /first"]);
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
            assert_eq!(found(line, Hierarchy::Unified), [""; 0], "{line:?}");
        }
    }

    #[test]
    fn maps_cgroups_to_directories() {
        for (visible_root, cgroup, expected) in [
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
                visible_root: visible_root.into(),
                mount_point: "/m".into(),
            };
            let dir = mount.resolve_directory(Path::new(cgroup));
            assert_eq!(
                dir.as_deref(),
                expected.map(Path::new),
                "{cgroup} under {visible_root}"
            );
        }
    }

    #[test]
    fn reads_up_to_the_limit_and_not_a_byte_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cgroup");
        std::fs::write(&path, "0::/a").unwrap();

        assert_eq!(read_file(&path, 5).unwrap(), b"0::/a");
        assert!(matches!(
            read_file(&path, 4),
            Err(CgroupError::TooLong { limit: 4, .. })
        ));
    }

    #[test]
    fn names_the_file_that_is_missing() {
        let error = read_file(Path::new("/nonexistent/cgroup"), 1).unwrap_err();
        assert_eq!(
            crate::log::format_error_chain(&error),
            "cannot read /nonexistent/cgroup: No such file or directory (os error 2)"
        );
    }
}

//! Decides which hierarchy controls devices, and finds a process's cgroup in it.

use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::error::CgroupError;
use super::membership::{self, Hierarchy};
use super::{CgroupDir, DeviceCgroup, kernel_file, mountinfo};

/// Most bytes of `/proc/PID/cgroup`: a line per hierarchy, each shorter than a path.
const MEMBERSHIP_LIMIT: u64 = 256 * 1024;
/// Most bytes of mountinfo: some hundred for each of the kernel's 100,000 mounts.
const MOUNTINFO_LIMIT: u64 = 32 * 1024 * 1024;

/// Where the kernel's file systems are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoots {
    /// A procfs of the host's PID namespace.
    pub proc: PathBuf,
    /// Where the unified hierarchy is, on a host that has only that.
    pub cgroup: PathBuf,
}

impl Default for HostRoots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            cgroup: "/sys/fs/cgroup".into(),
        }
    }
}

/// See [`DeviceCgroup::of`].
pub(super) fn find(roots: &HostRoots, pid: i32) -> Result<Option<DeviceCgroup>, CgroupError> {
    let membership = kernel_file::read(
        &roots.proc.join(pid.to_string()).join("cgroup"),
        MEMBERSHIP_LIMIT,
    )?;
    let mountinfo = kernel_file::read(&roots.proc.join("thread-self/mountinfo"), MOUNTINFO_LIMIT)?;
    if is_cgroup2(&roots.cgroup) {
        let found = locate(&membership, &mountinfo, Hierarchy::Unified)?;
        Ok(found.map(DeviceCgroup::V2))
    } else {
        let found = locate(&membership, &mountinfo, Hierarchy::V1Devices)?;
        Ok(found.map(DeviceCgroup::V1))
    }
}

/// Runtimes decide by this alone. A hybrid host has v2 somewhere below, but
/// there the runtime puts no device programs.
fn is_cgroup2(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// The process's cgroup in `hierarchy`; `None` if the host doesn't have it.
fn locate(
    membership: &[u8],
    mountinfo: &[u8],
    hierarchy: Hierarchy,
) -> Result<Option<CgroupDir>, CgroupError> {
    let Some(path) = membership::path(membership, hierarchy) else {
        return Ok(None);
    };
    let mounts = mountinfo::mounts(mountinfo, hierarchy);
    let found = mounts.into_iter().find_map(|mount| {
        Some(CgroupDir {
            dir: mount.dir_of(path)?,
            mount: mount.point,
            path: path.to_owned(),
        })
    });
    match found {
        Some(found) => Ok(Some(found)),
        None => Err(CgroupError::NotVisible {
            cgroup: path.to_owned(),
        }),
    }
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
        use Hierarchy::*;
        for (membership, mountinfo, hierarchy, expected) in [
            (
                "5:devices:/a/b\n",
                V1_MOUNT,
                V1Devices,
                Some("/sys/fs/cgroup/devices/a/b"),
            ),
            (
                "5:devices:/docker/x/y\n",
                V1_SUBTREE,
                V1Devices,
                Some("/sys/fs/cgroup/devices/y"),
            ),
            (
                "0::/a/b.scope\n",
                V2_MOUNT,
                Unified,
                Some("/sys/fs/cgroup/a/b.scope"),
            ),
            ("0::/\n", V2_MOUNT, Unified, Some("/sys/fs/cgroup")),
            // A hybrid host without the v1 controller.
            ("5:cpu:/a\n0::/a\n", V1_MOUNT, V1Devices, None),
        ] {
            let found = locate(membership.as_bytes(), mountinfo.as_bytes(), hierarchy).unwrap();
            let dir = found.map(|found| found.dir);
            assert_eq!(dir.as_deref(), expected.map(Path::new), "{membership}");
        }
    }

    #[test]
    fn says_when_the_cgroup_is_out_of_sight() {
        for (membership, mountinfo) in [
            ("5:devices:/docker/z\n", V1_SUBTREE),
            ("5:devices:/../z\n", V1_MOUNT),
            ("5:devices:/a\n", V2_MOUNT),
        ] {
            let found = locate(
                membership.as_bytes(),
                mountinfo.as_bytes(),
                Hierarchy::V1Devices,
            );
            assert!(
                matches!(found, Err(CgroupError::NotVisible { .. })),
                "{membership}: {found:?}"
            );
        }
    }

    #[test]
    fn reads_the_given_roots() {
        let dir = tempfile::tempdir().unwrap();
        let roots = HostRoots {
            proc: dir.path().to_owned(),
            cgroup: dir.path().to_owned(),
        };
        std::fs::create_dir_all(dir.path().join("7")).unwrap();
        std::fs::create_dir_all(dir.path().join("thread-self")).unwrap();
        std::fs::write(dir.path().join("7/cgroup"), "5:devices:/a/b\n").unwrap();
        std::fs::write(dir.path().join("thread-self/mountinfo"), V1_MOUNT).unwrap();

        let found = DeviceCgroup::find(&roots, 7).unwrap().unwrap();
        assert!(matches!(found, DeviceCgroup::V1(_)));
        assert_eq!(found.path(), Path::new("/a/b"));
        assert!(DeviceCgroup::find(&roots, 8).is_err());
    }
}

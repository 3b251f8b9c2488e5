//! Finds the files in a cgroup's directory to which a runtime writes when it sets device rules. A
//! program can watch these files to notice that rules were replaced. On cgroup v1, the file is
//! `devices.deny`. On cgroup v2, no file changes when a device program is attached. But runtimes
//! then also write the limits, such as `memory.max`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{CgroupOwner, DeviceCgroup, v2};

impl DeviceCgroup {
    /// Returns the path of the cgroup in its hierarchy, as `/proc/PID/cgroup` shows it.
    pub(crate) fn path(&self) -> &Path {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        &cgroup.path
    }

    /// Returns the ancestor of this cgroup at `path`, the path of the container's cgroup. Returns
    /// this cgroup itself if it has no ancestor at `path`.
    ///
    /// This is needed if this cgroup is that of a process which has moved to a descendant of the
    /// container's cgroup. The device rules are set in the container's cgroup.
    #[must_use]
    pub(crate) fn with_container_cgroup(mut self, path: &Path) -> Self {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = &mut self;
        if !path.as_os_str().is_empty() && cgroup.path.starts_with(path) {
            while cgroup.path != path && cgroup.dir != cgroup.mount {
                cgroup.path.pop();
                cgroup.dir.pop();
            }
        }
        self
    }

    /// Returns the cgroup that the runtime created for the container. On cgroup v2, it is the
    /// deepest of the container's own cgroups to which a device program is attached. On cgroup v1,
    /// returns this cgroup.
    ///
    /// Programs in the container may have created cgroups below the runtime's cgroup. Boathook sets
    /// no rules in those, because a process can leave them.
    #[must_use]
    pub(crate) fn into_runtime_cgroup(mut self) -> Self {
        if let Self::V2(cgroup) = &mut self {
            let mut own_cgroups = cgroup
                .self_and_ancestors()
                .filter(|level| level.owner == CgroupOwner::Container);
            let depth = own_cgroups
                .position(|level| v2::restricts_devices(level.dir).unwrap_or_default())
                .unwrap_or_default();
            drop(own_cgroups);
            for _ in 0..depth {
                cgroup.path.pop();
                cgroup.dir.pop();
            }
        }
        self
    }

    /// Returns the directories of the cgroups that contain only processes of this container: its
    /// cgroup, and the systemd scope above it if the runtime created one, as crun does.
    pub fn list_own_directories(&self) -> Vec<PathBuf> {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        let own_cgroups = cgroup
            .self_and_ancestors()
            .filter(|level| level.owner == CgroupOwner::Container);
        own_cgroups.map(|level| level.dir.to_owned()).collect()
    }
}

/// Returns the files in a cgroup's directory to which a runtime writes when it sets device rules,
/// such as `memory.max`. Leaves out `cgroup.procs` and similar files, which are also written
/// whenever a process starts in the container.
pub fn list_rule_change_files(directory: &Path) -> Vec<PathBuf> {
    let deny_path = directory.join("devices.deny");
    if deny_path.exists() {
        return vec![deny_path];
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let limit_entries = entries.filter(|entry| {
        let is_limit = |name: &str| !name.starts_with("cgroup.") && !name.ends_with(".pressure");
        let is_writable = |file: fs::Metadata| file.permissions().mode() & 0o200 != 0;
        entry.file_name().to_str().is_some_and(is_limit)
            && entry
                .metadata()
                .is_ok_and(|entry| entry.is_file() && is_writable(entry))
    });
    limit_entries.map(|entry| entry.path()).collect()
}

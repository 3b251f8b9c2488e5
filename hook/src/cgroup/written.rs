//! What is written in a cgroup when its device rules are set: on v1 the rules themselves, on v2
//! the limits that runtimes set after the program, of which nobody is told.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{DeviceCgroup, Owner, v2};

impl DeviceCgroup {
    /// Its path in its hierarchy.
    pub(crate) fn path(&self) -> &Path {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        &cgroup.path
    }

    /// The cgroup at `path` if this one is below it: a container's process may move deeper into
    /// its own, whose rules stay where they are.
    #[must_use]
    pub(crate) fn up_to(mut self, path: &Path) -> Self {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = &mut self;
        if !path.as_os_str().is_empty() && cgroup.path.starts_with(path) {
            while cgroup.path != path && cgroup.dir != cgroup.mount {
                cgroup.path.pop();
                cgroup.dir.pop();
            }
        }
        self
    }

    /// Of the container's own cgroups the deepest with a device program (cgroup v2): its
    /// process may be deeper by now, in one that it can leave and remove.
    #[must_use]
    pub(crate) fn of_runtime(mut self) -> Self {
        if let Self::V2(cgroup) = &mut self {
            let mut own = cgroup.levels().filter(|it| it.owner == Owner::Container);
            let above = own.position(|it| v2::restricts(it.dir).unwrap_or_default());
            let above = above.unwrap_or_default();
            drop(own);
            for _ in 0..above {
                cgroup.path.pop();
                cgroup.dir.pop();
            }
        }
        self
    }

    /// The directories of the container's own cgroups.
    pub(crate) fn own_directories(&self) -> Vec<PathBuf> {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        let own = cgroup
            .levels()
            .filter(|level| level.owner == Owner::Container);
        own.map(|level| level.dir.to_owned()).collect()
    }
}

/// The files in a cgroup's directory that may be written when its rules are set. Those for
/// processes, which are written whenever one is started in the container, are none of them.
pub(crate) fn set_with_rules(directory: &Path) -> Vec<PathBuf> {
    let list = directory.join("devices.deny");
    if list.exists() {
        return vec![list];
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let limits = entries.filter(|entry| {
        let is_limit = |name: &str| !name.starts_with("cgroup.") && !name.ends_with(".pressure");
        let can_be_written = |file: fs::Metadata| file.permissions().mode() & 0o200 != 0;
        entry.file_name().to_str().is_some_and(is_limit)
            && entry
                .metadata()
                .is_ok_and(|it| it.is_file() && can_be_written(it))
    });
    limits.map(|entry| entry.path()).collect()
}

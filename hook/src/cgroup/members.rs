//! Lists the processes of a container's cgroup. They show whether the container still runs. The
//! container's first process does not show this: it may end while other processes run, and `/proc`
//! does not describe a process whose main thread has ended.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use host_files::rooted_path::{open_regular_file, read_regular_text};
use nix::errno::Errno;

use super::DeviceCgroup;

/// The maximum size in bytes of `cgroup.procs`, `cgroup.threads` and `cgroup.events` (16 MiB). It
/// is enough for two million process ids.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The maximum number of cgroup directories that are read for one container. A container that has
/// created more cgroups is treated as running.
const MAX_DIRECTORIES: usize = 4096;

impl DeviceCgroup {
    fn directory(&self) -> &Path {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        &cgroup.dir
    }

    /// Returns the inode number of the cgroup's directory. The number shows whether the cgroup at a
    /// path is still the same one: a new cgroup at this path has another number.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(fs::metadata(self.directory())?.ino())
    }

    /// Reports whether the cgroup or one of its descendants contains a thread. Returns false if the
    /// cgroup was removed.
    pub(crate) fn is_populated(&self) -> io::Result<bool> {
        let is_populated = match self {
            Self::V1(cgroup) => has_tasks(&cgroup.dir),
            Self::V2(cgroup) => {
                let events = read_regular_text(&cgroup.dir.join("cgroup.events"), MAX_FILE_BYTES);
                events.map(|events| events.lines().any(|line| line == "populated 1"))
            }
        };
        match is_populated {
            Err(error) if is_removed(&error) => Ok(false),
            is_populated => is_populated,
        }
    }

    /// Returns the ids of the processes in the cgroup and its descendants. The second value is
    /// false if the list is incomplete because there are more than [`MAX_DIRECTORIES`] cgroups.
    pub fn list_processes(&self) -> (BTreeSet<i32>, bool) {
        let mut processes = BTreeSet::new();
        let mut directories = vec![self.directory().to_owned()];
        let mut visited_count = 0;
        while let Some(directory) = directories.pop() {
            visited_count += 1;
            if visited_count > MAX_DIRECTORIES {
                return (processes, false);
            }
            // In a threaded cgroup (cgroup v2), a read of `cgroup.procs` fails with EOPNOTSUPP.
            // `cgroup.threads` can be read instead.
            let paths = ["cgroup.procs", "cgroup.threads"].map(|name| directory.join(name));
            let content = paths
                .iter()
                .find_map(|path| read_regular_text(path, MAX_FILE_BYTES).ok())
                .unwrap_or_default();
            processes.extend(content.lines().filter_map(|line| line.parse::<i32>().ok()));
            directories.extend(list_child_cgroups(&directory));
        }
        (processes, true)
    }
}

/// Reports whether a cgroup v1 or one of its descendants contains a thread. Cgroup v1 has no
/// `cgroup.events`, so the `tasks` file of every descendant is read.
fn has_tasks(directory: &Path) -> io::Result<bool> {
    let mut directories = vec![directory.to_owned()];
    let mut visited_count = 0;
    while let Some(directory) = directories.pop() {
        visited_count += 1;
        if visited_count > MAX_DIRECTORIES {
            return Ok(true);
        }
        let read_result =
            open_regular_file(&directory.join("tasks")).and_then(|mut tasks| tasks.read(&mut [0]));
        match read_result {
            Ok(0) => directories.extend(list_child_cgroups(&directory)),
            Ok(_) => return Ok(true),
            Err(error) if is_removed(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn list_child_cgroups(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path())
}

/// Reports whether a read of a cgroup's file failed because the cgroup was removed. If the file was
/// opened before the removal, the error is ENODEV.
fn is_removed(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOENT | Errno::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::super::CgroupDir;
    use super::*;

    fn cgroup(directory: &Path) -> CgroupDir {
        CgroupDir {
            mount: directory.to_owned(),
            dir: directory.join("c"),
            path: "/c".into(),
        }
    }

    #[test]
    fn a_cgroup_is_populated_as_long_as_one_below_it_has_a_thread() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("c");
        let v1 = || DeviceCgroup::V1(cgroup(top.path())).is_populated().unwrap();
        let v2 = || DeviceCgroup::V2(cgroup(top.path())).is_populated().unwrap();
        assert!(!v1() && !v2(), "it was removed");
        fs::create_dir_all(own.join("inner/deeper")).unwrap();
        for directory in ["", "inner", "inner/deeper"] {
            fs::write(own.join(directory).join("tasks"), "").unwrap();
        }
        for (populated, text) in [(false, "populated 0\n"), (true, "populated 1\nfrozen 0\n")] {
            fs::write(own.join("cgroup.events"), text).unwrap();
            assert_eq!(v2(), populated);
        }
        assert!(!v1());
        fs::write(own.join("inner/deeper/tasks"), "7\n").unwrap();
        assert!(v1());
    }

    #[test]
    fn processes_of_nested_and_threaded_cgroups_are_found() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("c");
        fs::create_dir_all(own.join("inner")).unwrap();
        fs::create_dir_all(own.join("threaded")).unwrap();
        fs::write(own.join("cgroup.procs"), "7\n8\n").unwrap();
        fs::write(own.join("inner/cgroup.procs"), "9\n").unwrap();
        fs::write(own.join("threaded/cgroup.threads"), "10\n").unwrap();
        let found = DeviceCgroup::V2(cgroup(top.path())).list_processes();
        assert_eq!(found, (BTreeSet::from([7, 8, 9, 10]), true));
    }
}

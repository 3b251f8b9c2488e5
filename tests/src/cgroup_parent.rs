//! Names cgroups below which tests put the cgroups of containers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::patience::wait_until;

/// The name of a cgroup that no other test uses. A runtime creates the cgroup when it puts a
/// container below it, and does not remove it. Dropping the value removes it.
#[derive(Debug)]
pub struct CgroupParent(String);

impl CgroupParent {
    pub fn new() -> Self {
        let number = crate::scratch::number();
        Self(format!("boathook-parent-{}-{number}", std::process::id()))
    }

    /// Returns the `cgroupsPath` of the cgroup itself.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/").join(&self.0)
    }

    /// Returns the `cgroupsPath` of the cgroup `name` below this one.
    pub fn child(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Returns the `cgroupsPath` of a cgroup below this one that no other container has.
    pub fn unique_child(&self) -> PathBuf {
        let number = crate::scratch::number();
        self.child(&format!("child-{number}"))
    }
}

impl Default for CgroupParent {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CgroupParent {
    fn drop(&mut self) {
        remove_named(&self.0);
    }
}

/// Removes the cgroups whose name contains `text`. A cgroup that still has processes is not
/// removed, and the test reports it as a leftover.
pub(crate) fn remove_named(text: &str) {
    // The last process of a cgroup may take a moment to end.
    wait_until(|| {
        let directories = directories_named(text);
        directories.iter().rev().for_each(|cgroup| remove(cgroup));
        directories.is_empty()
    });
}

/// Removes a cgroup and the cgroups that an engine left below it, unless they have processes.
fn remove(cgroup: &Path) {
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    let _ = fs::remove_dir(cgroup);
}

/// Returns the cgroups whose name contains `text`, in every hierarchy of the machine. A cgroup
/// comes before the cgroups below it.
pub(crate) fn directories_named(text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(text) {
                found.push(entry.path());
            }
            waiting.push(entry.path());
        }
    }
    found
}

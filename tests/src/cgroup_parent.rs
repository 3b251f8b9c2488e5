//! A cgroup for containers to be nested in.

use std::fs;
use std::path::{Path, PathBuf};

use crate::patience::wait_until;

/// A name for a cgroup that no other test uses. A runtime makes it when a
/// container is put below, and leaves it there; dropping this removes it.
#[derive(Debug)]
pub struct CgroupParent(String);

impl CgroupParent {
    pub fn new() -> Self {
        let number = crate::scratch::number();
        Self(format!("boathook-parent-{}-{number}", std::process::id()))
    }

    /// The `cgroupsPath` of the cgroup itself.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/").join(&self.0)
    }

    /// The `cgroupsPath` of a cgroup in it.
    pub fn child(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The `cgroupsPath` of a cgroup in it that no other container has.
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

/// Removes the cgroups whose name contains `text`. One that keeps its processes
/// stays, for the test to find it.
pub(crate) fn remove_named(text: &str) {
    // The last process may take a moment to end.
    wait_until(|| {
        let directories = directories_named(text);
        directories.iter().rev().for_each(|cgroup| remove(cgroup));
        directories.is_empty()
    });
}

/// Removes a cgroup and those that an engine left below it, except while they
/// have processes.
fn remove(cgroup: &Path) {
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    let _ = fs::remove_dir(cgroup);
}

/// The cgroups whose name contains `text`, in every hierarchy of the machine,
/// those above before those below.
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

//! Finds everything that a container left on the machine.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::bundle::Bundle;
use crate::cgroup_parent::directories_named;
use crate::mountinfo;
use crate::runc::Runc;

/// Lists everything on the machine that still belongs to the bundle's container, in
/// words: mounts, cgroups, processes, the runtime's state. Empty is right once
/// it is deleted.
///
/// Only objects with the container's id or in its bundle are examined, so
/// that tests can run side by side.
pub fn find_leftovers(runc: &Runc, bundle: &Bundle) -> Result<Vec<String>> {
    let mut found = mounts(bundle.directory(), bundle.id())?;
    found.extend(
        directories_named(bundle.id())
            .into_iter()
            .map(|path| format!("cgroup {}", path.display())),
    );
    found.extend(processes(bundle.id()));
    if runc.knows(bundle.id()) {
        found.push(format!("runc knows {}", bundle.id()));
    }
    Ok(found)
}

fn mounts(directory: &Path, id: &str) -> Result<Vec<String>> {
    let belongs = |path: &Path| path.starts_with(directory) || path.to_string_lossy().contains(id);
    let mounts = mountinfo::of_self()?
        .into_iter()
        .filter(|mount| belongs(&mount.mount_point));
    Ok(mounts
        .map(|mount| format!("mount {}", mount.mount_point.display()))
        .collect())
}

/// The processes that are in one of those cgroups. Dead ones that init has yet
/// to reap hold nothing, and the runtime need not remove them.
fn processes(id: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let alive = all.filter(|process| {
        let reads = |name: &str| fs::read_to_string(process.path().join(name)).unwrap_or_default();
        reads("cgroup").contains(id) && !reads("status").contains("\nState:\tZ")
    });
    alive
        .map(|process| format!("process {}", process.file_name().to_string_lossy()))
        .collect()
}

//! Finds everything that a container left behind on the machine.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::bundle::Bundle;
use crate::cgroup_parent::directories_named;
use crate::mountinfo;
use crate::runc::Runc;

/// Describes everything on the machine that still belongs to the container of a bundle: mounts,
/// cgroups, processes, and the runtime's state. The list must be empty after the container was
/// deleted.
///
/// Only objects with the container's id or in its bundle are examined, so that tests can run at the
/// same time.
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

/// Describes the processes in the cgroups of a container. Zombies that init has not reaped yet do
/// not count, because the runtime need not remove them.
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

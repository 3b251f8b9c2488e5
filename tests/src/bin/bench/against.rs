//! Compares the time of the hook with that of another build of it. Runs of the two alternate.

use std::path::Path;

use anyhow::{Result, bail};
use harness::cgroup_view::CgroupView;
use harness::figure::Figure;
use harness::{binaries, figure, privilege};

use crate::filesystem::FileSystem;
use crate::hook_process;
use crate::inside::{self, Bundles};
use crate::recorded;
use crate::workload::Workload;

/// The goal: the time of the hook divided by the time of the other build.
const GOAL: f64 = 1.1;

/// Prints the figures of each kind of work as soon as they are measured.
pub(crate) fn measure(workload: &Workload, other: &Path, rounds: usize) -> Result<()> {
    // Both programs are copies: a file that the linker has written takes longer to map than a copy
    // of it.
    let copy = tempfile::Builder::new().prefix("boathook-").tempdir()?;
    let other_hook = copy.path().join("boathook-hook");
    std::fs::copy(other, &other_hook)?;
    let hooks = [binaries::program("boathook-hook")?, other_hook];
    report("no request", hook_process::own_times(&hooks, rounds)?);
    let mut any = false;
    for view in CgroupView::ALL {
        if let Some(reason) = privilege::missing_for_runc(view) {
            println!("skipped: {view}: {reason}");
            continue;
        }
        any = true;
        let (ext4, tmpfs) = (FileSystem::ext4()?, FileSystem::tmpfs()?);
        for (name, parent, bundles) in [
            ("tmpfs", tmpfs.path(), Bundles::Deleted),
            ("a new ext4", ext4.path(), Bundles::Kept),
        ] {
            let times = inside::added(&hooks, workload, view, rounds, parent, bundles)?;
            report(&format!("reference work, root on {name}, {view}"), times);
        }
        for (name, times) in recorded::own_times(&hooks, view, rounds)? {
            report(&format!("{name}, {view}"), times);
        }
    }
    if !any {
        bail!("no container could be started on this machine");
    }
    Ok(())
}

fn report(work: &str, [this, other]: [f64; 2]) {
    let figures = [
        Figure::time(&format!("own time, {work}"), this, None),
        Figure::time(&format!("of the other, {work}"), other, None),
        Figure::new(&format!("ratio, {work}"), this / other, "x", Some(GOAL)),
    ];
    println!("{}", figure::table(&figures));
}

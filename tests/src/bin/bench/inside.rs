//! Measures how long the hook runs as a child of a runtime. The time of a static program that does
//! nothing in the same place is subtracted, because it is the runtime's cost of starting a hook.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use harness::binaries;
use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::figure::{Figure, median_added};
use harness::reference_work::ReferenceWork;
use harness::runc::Runc;
use harness::scratch;

use crate::filesystem::FileSystem;
use crate::rounds::{WARM_UP, create};
use crate::workload::Workload;

/// The number of rounds of the reference work for each round of the larger work, which takes
/// longer.
const FEWER: usize = 4;

/// The numbers of device nodes and libraries of the larger work, and their ratio to the reference
/// work. If the larger work takes more than `FACTOR` times as long, the hook's time grows faster
/// than linearly.
const MORE: (usize, usize) = (16, FACTOR * ReferenceWork::LIBRARIES);
const FACTOR: usize = 5;

/// Measures the time of the reference work in the hook, and that of the larger work relative to it.
///
/// The containers' root file systems are in /var/tmp, on a new ext4 and on a tmpfs. On a used ext4
/// the cost of creating a file depends on the files that were deleted in the minutes before; on the
/// new one nothing is deleted.
pub(crate) fn measure(workload: &Workload, view: CgroupView, rounds: usize) -> Result<[Figure; 5]> {
    let (nodes, libraries) = MORE;
    let more = Workload::with_size(nodes, libraries)?;
    let disk = Path::new("/var/tmp");
    let (ext4, tmpfs) = (FileSystem::ext4()?, FileSystem::tmpfs()?);
    let hook = [binaries::program("boathook-hook")?];
    let [usual] = added(&hook, workload, view, rounds, disk, Bundles::Deleted)?;
    let [on_ext4] = added(&hook, workload, view, rounds, ext4.path(), Bundles::Kept)?;
    let [on_tmpfs] = added(
        &hook,
        workload,
        view,
        rounds,
        tmpfs.path(),
        Bundles::Deleted,
    )?;
    let fewer = rounds.div_ceil(FEWER);
    let [more] = added(&hook, &more, view, fewer, disk, Bundles::Deleted)?;
    let goal = match view {
        CgroupView::V1 => 1.8,
        CgroupView::V2 => 2.5,
    };
    let time = |work: &str, time, goal| {
        let name = format!("boathook's own time, {work}, {view}");
        Figure::time(&name, time, goal)
    };
    Ok([
        time("reference work", usual, Some(goal)),
        time("reference work, root on a new ext4", on_ext4, Some(goal)),
        time("reference work, root on tmpfs", on_tmpfs, None),
        time(
            &format!("{nodes} nodes and {libraries} libraries"),
            more,
            None,
        ),
        Figure::new(
            &format!("{FACTOR} times the libraries, against the reference work, {view}"),
            more / usual,
            "x",
            Some(FACTOR as f64),
        ),
    ])
}

/// The treatment of bundles after the runs of their containers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bundles {
    Deleted,
    /// The bundle is kept until the end of the measurement, so that no deletion affects other runs.
    Kept,
}

/// Returns the medians of the time that the work takes in each hook, in containers whose root file
/// systems are in `parent`. Runs of the hooks alternate.
pub(crate) fn added<const HOOKS: usize>(
    hooks: &[PathBuf; HOOKS],
    workload: &Workload,
    view: CgroupView,
    rounds: usize,
    parent: &Path,
    bundles: Bundles,
) -> Result<[f64; HOOKS]> {
    let make_bundle =
        |hook: Option<&Path>, times: &Path| workload.timed_bundle(hook, times, parent);
    own_times(hooks, make_bundle, view, rounds, bundles)
}

/// Returns the medians of the time of each hook minus that of a program that does nothing. Runs of
/// the programs alternate. `make_bundle` returns the bundle of a container whose hook (`None`: the
/// program that does nothing) appends its time to a file.
pub(crate) fn own_times<const HOOKS: usize>(
    hooks: &[PathBuf; HOOKS],
    make_bundle: impl Fn(Option<&Path>, &Path) -> Result<Bundle>,
    view: CgroupView,
    rounds: usize,
    bundles: Bundles,
) -> Result<[f64; HOOKS]> {
    let runc = Runc::new(view)?;
    let directory = scratch::directory("inside")?;
    let mut kept = Vec::new();
    let empty = (None, directory.path().join("empty"));
    let work = hooks.iter().enumerate();
    let work = work.map(|(n, hook)| (Some(hook.as_path()), directory.path().join(n.to_string())));
    let turns: Vec<_> = work.chain([empty]).collect();
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            turns
                .iter()
                .try_for_each(|(_, file)| fs::remove_file(file))?;
        }
        for turn in 0..turns.len() {
            // Each round begins with another program, so that none always runs after the same one.
            let (hook, file) = &turns[(round + turn) % turns.len()];
            let bundle = make_bundle(*hook, file)?;
            create(&runc, &bundle)?;
            runc.delete(bundle.id());
            if bundles == Bundles::Kept {
                kept.push(bundle);
            }
        }
    }
    let empty = times(&turns[HOOKS].1)?;
    let mut medians = [0.0; HOOKS];
    for ((_, file), result) in turns.iter().zip(&mut medians) {
        *result = median_added(&times(file)?, &empty);
    }
    Ok(medians)
}

fn times(file: &Path) -> Result<Vec<f64>> {
    let text = fs::read_to_string(file)?;
    let lines = text.lines().map(str::parse);
    lines
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} has a line that is not a number", file.display()))
}

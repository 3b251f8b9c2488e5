//! How long the hook runs, without what the runtime does to start it: as a
//! runtime's child, from its start to its end, less what a static program that
//! does nothing takes in the same place.

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

/// How often more than the reference work has its turn, for each turn of that.
const FEWER: usize = 4;

/// Several times the reference work: what costs more than so many times as much
/// grows faster than the work.
const MORE: (usize, usize) = (16, FACTOR * ReferenceWork::LIBRARIES);
const FACTOR: usize = 5;

/// Measures the time of the reference work in the hook, and how much longer more work takes.
///
/// The containers' root file systems are in /var/tmp, and once more on a new ext4 and on a
/// tmpfs: what a new file costs on ext4 depends on what was deleted there in the minutes
/// before. Nothing is deleted on the new one.
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

/// The treatment of a bundle after its container.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bundles {
    Deleted,
    /// Kept until the end of the measurement.
    Kept,
}

/// Returns the medians of what the work takes in each hook, in turn, in containers whose roots
/// are in `parent`.
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

/// Returns the medians of the time of each hook less that of a program that does nothing, in
/// turn. `make_bundle` makes the bundle of a container whose hook, or that program, adds its time
/// to a file.
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
            // Another one begins each round, so that none always follows the same neighbour.
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

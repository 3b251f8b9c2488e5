//! How long the hook runs, without what the runtime does to start it: as a
//! runtime's child, from its start to its end, less what a static program that
//! does nothing takes in the same place.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use harness::cgroup_view::CgroupView;
use harness::figure::{Figure, median};
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

/// What the reference work takes inside, and how much longer more work takes.
///
/// The containers' root file systems are in /var/tmp, and once more on a new ext4 and on a
/// tmpfs: what a new file costs on ext4 depends on what was deleted there in the minutes
/// before. Nothing is deleted on the new one.
pub(crate) fn measure(workload: &Workload, view: CgroupView, rounds: usize) -> Result<[Figure; 5]> {
    let (nodes, libraries) = MORE;
    let more = Workload::of(nodes, libraries)?;
    let disk = Path::new("/var/tmp");
    let (ext4, tmpfs) = (FileSystem::ext4()?, FileSystem::tmpfs()?);
    let usual = added(workload, view, rounds, disk, Bundles::Deleted)?;
    let on_ext4 = added(workload, view, rounds, ext4.path(), Bundles::Kept)?;
    let on_tmpfs = added(workload, view, rounds, tmpfs.path(), Bundles::Deleted)?;
    let more = added(&more, view, rounds.div_ceil(FEWER), disk, Bundles::Deleted)?;
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

/// What becomes of a bundle after its container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bundles {
    Deleted,
    /// Kept until the end of the measurement.
    Kept,
}

/// The median of what the work takes inside, in containers whose roots are in `parent`.
fn added(
    workload: &Workload,
    view: CgroupView,
    rounds: usize,
    parent: &Path,
    bundles: Bundles,
) -> Result<f64> {
    let runc = Runc::new(view)?;
    let directory = scratch::directory("inside")?;
    let mut kept = Vec::new();
    let files = ["work", "empty"].map(|name| directory.path().join(name));
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            files.iter().try_for_each(fs::remove_file)?;
        }
        for (work, file) in [true, false].into_iter().zip(&files) {
            let bundle = workload.timed_bundle(work, file, parent)?;
            create(&runc, &bundle)?;
            runc.delete(bundle.id());
            if bundles == Bundles::Kept {
                kept.push(bundle);
            }
        }
    }
    let [work, empty] = [times(&files[0])?, times(&files[1])?];
    let added = work.iter().zip(&empty).map(|(work, empty)| work - empty);
    Ok(median(added.collect()))
}

fn times(file: &Path) -> Result<Vec<f64>> {
    let text = fs::read_to_string(file)?;
    let lines = text.lines().map(str::parse);
    lines
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} has a line that is not a number", file.display()))
}

//! How long the hook runs, without what the runtime does to start it: as a
//! runtime's child, from its start to its end, less what a static program that
//! does nothing takes in the same place.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use harness::cgroup_view::CgroupView;
use harness::runc::Runc;
use harness::scratch;

use crate::figure::{Figure, Goal, Unit};
use crate::rounds::{WARM_UP, create, median};
use crate::workload::Workload;

/// The median of what the reference work takes inside.
pub(crate) fn measure(workload: &Workload, view: CgroupView, rounds: usize) -> Result<Figure> {
    let runc = Runc::new(view)?;
    let directory = scratch::directory("inside")?;
    let files = ["reference", "empty"].map(|name| directory.path().join(name));
    for round in 0..WARM_UP + rounds {
        if round == WARM_UP {
            files.iter().try_for_each(fs::remove_file)?;
        }
        for (work, file) in [true, false].into_iter().zip(&files) {
            let bundle = workload.timed_bundle(work, file)?;
            create(&runc, &bundle)?;
            runc.delete(bundle.id());
        }
    }
    let [work, empty] = [times(&files[0])?, times(&files[1])?];
    let added = work.iter().zip(&empty).map(|(work, empty)| work - empty);
    let goal = match view {
        CgroupView::V1 => 1.8,
        CgroupView::V2 => 2.5,
    };
    Ok(Figure::new(
        format!("boathook's own time, reference work, {view}"),
        median(added.collect()),
        Unit::Milliseconds,
        Some(Goal::AtMost(goal)),
    ))
}

fn times(file: &Path) -> Result<Vec<f64>> {
    let text = fs::read_to_string(file)?;
    let lines = text.lines().map(str::parse);
    lines
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} has a line that is not a number", file.display()))
}

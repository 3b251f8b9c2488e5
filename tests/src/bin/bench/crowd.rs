//! Many containers that are started at once.

use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::figure::median;
use harness::runc::Runc;

use crate::kind::Kind;
use crate::rounds;

/// The number of containers that start at once.
pub(crate) const SIZE: usize = 64;

/// The number of crowds with devices, and of those without.
const ROUNDS: usize = 3;

/// Returns how many times as long it takes to start a crowd with devices as one without. Fails if
/// one container does not start.
pub(crate) fn measure(
    make_bundle: impl Fn(Kind) -> Result<Bundle>,
    view: CgroupView,
) -> Result<f64> {
    let runc = Runc::new(view)?;
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let without = start(Kind::NoHook, &make_bundle, &runc)?;
        ratios.push(start(Kind::ReferenceWork, &make_bundle, &runc)? / without);
    }
    Ok(median(ratios))
}

/// Returns the time in milliseconds in which all containers of a crowd are started.
fn start(kind: Kind, make_bundle: impl Fn(Kind) -> Result<Bundle>, runc: &Runc) -> Result<f64> {
    let bundles = (0..SIZE).map(|_| make_bundle(kind));
    let bundles = bundles.collect::<Result<Vec<_>>>()?;
    let since = Instant::now();
    let started: Result<Vec<f64>> = thread::scope(|scope| {
        let starts = bundles
            .iter()
            .map(|bundle| scope.spawn(|| rounds::create(runc, bundle)));
        let starts: Vec<_> = starts.collect();
        let ended = starts.into_iter().map(|start| start.join());
        ended
            .map(|start| start.unwrap_or_else(|_| bail!("a start has panicked")))
            .collect()
    });
    let took = since.elapsed().as_secs_f64() * 1e3;
    for bundle in &bundles {
        runc.delete(bundle.id());
    }
    started?;
    Ok(took)
}

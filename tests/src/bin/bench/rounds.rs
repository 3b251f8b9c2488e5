//! The measuring itself.

use std::process::Stdio;

use anyhow::{Context, Result};
use harness::bundle::Bundle;
use harness::figure::{median, median_added, time};
use harness::runc::Runc;

use crate::kind::Kind;

/// Rounds before those that count: they fill the caches.
pub(crate) const WARM_UP: usize = 3;

/// The time of each kind in each round, in milliseconds; none of a kind without turns.
pub(crate) struct Times([Vec<f64>; Kind::ALL.len()]);

impl Times {
    pub(crate) fn median(&self, kind: Kind) -> f64 {
        median(self.0[kind as usize].clone())
    }

    /// The median of what a kind took longer than another.
    pub(crate) fn added(&self, kind: Kind, base: Kind) -> f64 {
        median_added(&self.0[kind as usize], &self.0[base as usize])
    }
}

/// Lets each of these kinds have its turn in every round.
pub(crate) fn run(
    kinds: &[Kind],
    make_bundle: impl Fn(Kind) -> Result<Bundle>,
    wrapped: &Runc,
    rounds: usize,
) -> Result<Times> {
    let view = wrapped.view();
    let runc = Runc::new(view)?;
    let mut times: [Vec<f64>; Kind::ALL.len()] = Default::default();
    for round in 0..WARM_UP + rounds {
        for turn in 0..kinds.len() {
            // Another one begins each round, so that none always follows the
            // same neighbour.
            let kind = kinds[(round + turn) % kinds.len()];
            let bundle = make_bundle(kind)?;
            let runc = if kind == Kind::Wrapper {
                wrapped
            } else {
                &runc
            };
            let time = create(runc, &bundle).with_context(|| format!("with {kind} on {view}"))?;
            runc.delete(bundle.id());
            if round >= WARM_UP {
                times[kind as usize].push(time);
            }
        }
    }
    Ok(Times(times))
}

/// Returns the time of `runc create` in milliseconds.
pub(crate) fn create(runc: &Runc, bundle: &Bundle) -> Result<f64> {
    let mut command = runc.command("create")?;
    command
        .arg("--bundle")
        .arg(bundle.directory())
        .arg(bundle.id());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    time(&mut command)
}

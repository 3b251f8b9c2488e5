//! Runs the containers of all kinds and records their times.

use std::process::Stdio;

use anyhow::{Context, Result};
use harness::bundle::Bundle;
use harness::figure::{median, median_added, time};
use harness::runc::Runc;

use crate::kind::Kind;

/// The number of rounds that are run first and not counted. They fill the caches.
pub(crate) const WARM_UP: usize = 3;

/// The times in milliseconds of each kind, one per round. A kind that is not measured has none.
pub(crate) struct Times([Vec<f64>; Kind::ALL.len()]);

impl Times {
    pub(crate) fn median(&self, kind: Kind) -> f64 {
        median(self.0[kind as usize].clone())
    }

    /// Returns the median over the rounds of the time of `kind` minus that of `base`.
    pub(crate) fn added(&self, kind: Kind, base: Kind) -> f64 {
        median_added(&self.0[kind as usize], &self.0[base as usize])
    }
}

/// Runs one container of each kind in every round.
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
            // Each round begins with another kind, so that none always runs after the same one.
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

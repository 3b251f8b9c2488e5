//! What `boathook-runtime` adds to a runtime for a container that requests
//! nothing: the time of the whole command, before a runtime that ends at once.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use harness::binaries;

use crate::figure::{Figure, Goal, Unit};
use crate::kind::Kind;
use crate::rounds::{WARM_UP, median};
use crate::workload::{Workload, fake_runtime};

/// The median of the time that the wrapper adds.
pub(crate) fn measure(workload: &Workload, rounds: usize) -> Result<Figure> {
    let wrapper = binaries::program("boathook-runtime")?;
    let runtime = fake_runtime()?;
    let bundle = workload.bundle(Kind::NoHook)?;
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..WARM_UP + rounds {
        for (program, times) in [&wrapper, &runtime].into_iter().zip(&mut times) {
            let time = create(program, bundle.directory(), workload)?;
            if round >= WARM_UP {
                times.push(time);
            }
        }
    }
    let [with, without] = times.map(median);
    Ok(Figure::new(
        "added by boathook-runtime, no request".to_string(),
        with - without,
        Unit::Milliseconds,
        Some(Goal::AtMost(2.0)),
    ))
}

fn create(program: &Path, bundle: &Path, workload: &Workload) -> Result<f64> {
    let mut command = Command::new(program);
    command
        .env("BOATHOOK_CONFIG", workload.config_file())
        .args(["create", "--bundle"])
        .arg(bundle)
        .arg("bench")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        bail!("{} failed ({status})", program.display());
    }
    Ok(time)
}

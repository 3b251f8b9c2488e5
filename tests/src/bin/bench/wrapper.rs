//! Measures the time that `boathook-runtime` adds to a runtime for a container that requests
//! nothing. The runtime is a program that ends at once.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use harness::binaries;
use harness::figure::{Figure, median, time};

use crate::kind::Kind;
use crate::rounds::WARM_UP;
use crate::workload::{Workload, fake_runtime};

/// Returns the median of the time that the wrapper adds.
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
    let name = "added by boathook-runtime, no request";
    Ok(Figure::time(name, with - without, Some(2.0)))
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
    time(&mut command)
}

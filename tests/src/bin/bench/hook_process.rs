//! Measures the hook as a single process for a container that requests nothing. All classes are
//! installed, and the container has as many variables as a pod in a namespace with many services.
//! No runtime is involved, because the time of a whole container varies by more than the time that
//! is measured.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;
use harness::binaries;
use harness::compile::Libc;
use harness::figure::{Figure, median, median_added, time};
use harness::requestless_bundle::RequestlessBundle;

use crate::rounds::WARM_UP;
use crate::workload::empty_hook_of;

/// The number of runs in a round. Together they take about as long as one container.
const RUNS: usize = 10;

/// Returns the medians of the hook and of programs that do nothing: one for glibc, as most programs
/// on a host, and one for musl, as the hook. Runs of the programs alternate.
pub(crate) fn measure(rounds: usize) -> Result<[Figure; 4]> {
    let files = RequestlessBundle::new()?;
    let hook = files.hook(&[binaries::program("boathook-hook")?.display().to_string()])?;
    let [empty, of_musl] = [Libc::Glibc, Libc::Musl].map(empty_hook_of);
    let commands = [hook, Command::new(empty?), Command::new(of_musl?)];
    let times = in_turn(&files, commands, rounds)?;
    let added = median_added(&times[0], &times[1]);
    let [with, without, of_musl] = times.map(median);
    let variables = RequestlessBundle::VARIABLES;
    let itself = format!("boathook by itself, no request, {variables} variables");
    Ok([
        Figure::time(&itself, with, None),
        Figure::time("an empty static program by itself", without, None),
        Figure::time("an empty static program of musl by itself", of_musl, None),
        Figure::time("boathook's own time, no request", added, Some(1.0)),
    ])
}

/// Returns how much longer, in milliseconds, each hook takes than a program for musl that does
/// nothing.
pub(crate) fn own_times(hooks: &[PathBuf; 2], rounds: usize) -> Result<[f64; 2]> {
    let files = RequestlessBundle::new()?;
    let [this, other] = hooks
        .each_ref()
        .map(|hook| files.hook(&[hook.display().to_string()]));
    let empty = Command::new(empty_hook_of(Libc::Musl)?);
    let [this, other, empty] = in_turn(&files, [this?, other?, empty], rounds)?;
    Ok([this, other].map(|times| median_added(&times, &empty)))
}

/// Returns the times of each command in milliseconds.
fn in_turn(
    files: &RequestlessBundle,
    mut commands: [Command; 3],
    rounds: usize,
) -> Result<[Vec<f64>; 3]> {
    let state = files.state();
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..RUNS * (WARM_UP + rounds) {
        for (command, times) in commands.iter_mut().zip(&mut times) {
            command.stdin(File::open(&state)?).stdout(Stdio::null());
            let time = time(command)?;
            if round >= RUNS * WARM_UP {
                times.push(time);
            }
        }
    }
    Ok(times)
}

//! What the hook takes as a process by itself, for a container that requests
//! nothing: all classes are there, and as many variables as in a namespace with
//! many services. Containers take turns that are longer than what is measured.

use std::fs::File;
use std::process::{Command, Stdio};

use anyhow::Result;
use harness::binaries;
use harness::compile::Libc;
use harness::figure::{Figure, median, time};
use harness::nothing_asked::NothingAsked;

use crate::rounds::WARM_UP;
use crate::workload::{empty_hook, empty_hook_of};

/// As many runs in a round as take together about as long as a container does.
const RUNS: usize = 10;

/// The medians of the hook and of programs that do nothing, in turn: of glibc, as most
/// programs on a host are, and of musl, as the hook is.
pub(crate) fn measure(rounds: usize) -> Result<[Figure; 4]> {
    let files = NothingAsked::new()?;
    let state = files.state();
    let mut hook = files.hook(&[binaries::program("boathook")?.display().to_string()])?;
    let mut empty = Command::new(empty_hook()?);
    let mut of_musl = Command::new(empty_hook_of(Libc::Musl)?);
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..RUNS * (WARM_UP + rounds) {
        let commands = [&mut hook, &mut empty, &mut of_musl];
        for (command, times) in commands.into_iter().zip(&mut times) {
            command.stdin(File::open(&state)?).stdout(Stdio::null());
            let time = time(command)?;
            if round >= RUNS * WARM_UP {
                times.push(time);
            }
        }
    }
    let added = times[0].iter().zip(&times[1]);
    let added = median(added.map(|(with, without)| with - without).collect());
    let [with, without, of_musl] = times.map(median);
    let variables = NothingAsked::VARIABLES;
    let itself = format!("boathook by itself, no request, {variables} variables");
    Ok([
        Figure::time(&itself, with, None),
        Figure::time("an empty static program by itself", without, None),
        Figure::time("an empty static program of musl by itself", of_musl, None),
        Figure::time("boathook's own time, no request", added, Some(0.3)),
    ])
}

//! What the hook takes as a process by itself, for a container that asks for
//! nothing: all classes are there, and as many variables as in a namespace with
//! many services. Containers take turns that are longer than what is measured.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use harness::{binaries, scratch};
use serde_json::json;

use crate::figure::{Figure, Goal, Unit};
use crate::rounds::{WARM_UP, median};
use crate::workload::empty_hook;

const VARIABLES: usize = 300;

/// The medians of the hook and of a program that does nothing, in turn.
pub(crate) fn measure(rounds: usize) -> Result<[Figure; 3]> {
    let directory = scratch::directory("alone")?;
    let file = |name: &str| directory.path().join(name);
    let env: Vec<String> = (0..VARIABLES)
        .map(|number| format!("SERVICE_{number}_PORT_443_TCP_ADDR=10.0.0.1"))
        .collect();
    let config =
        json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"env": env}});
    fs::write(file("config.json"), config.to_string())?;
    let state = json!({"ociVersion": "1.0.2", "id": "bench", "status": "creating",
                       "pid": std::process::id(), "bundle": directory.path()});
    fs::write(file("state"), state.to_string())?;
    let classes = binaries::source_tree().join("device-class/classes");
    fs::write(file("boathook.toml"), format!("classes = [{classes:?}]\n"))?;

    let mut hook = Command::new(binaries::program("boathook")?);
    hook.arg("--config")
        .arg(file("boathook.toml"))
        .arg("prestart");
    let mut empty = Command::new(empty_hook()?);
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..WARM_UP + rounds {
        for (command, times) in [&mut hook, &mut empty].into_iter().zip(&mut times) {
            let time = run(command, &file("state"))?;
            if round >= WARM_UP {
                times.push(time);
            }
        }
    }
    let names = [
        format!("boathook by itself, nothing asked, {VARIABLES} variables"),
        "an empty static program by itself".to_string(),
    ];
    let [hook, empty] = names;
    let [with, without] = times.map(median);
    let figure = |name, time, goal| Figure::new(name, time, Unit::Milliseconds, goal);
    Ok([
        figure(hook, with, None),
        figure(empty, without, None),
        figure(
            "boathook's own time, nothing asked".to_string(),
            with - without,
            Some(Goal::AtMost(0.3)),
        ),
    ])
}

fn run(command: &mut Command, state: &Path) -> Result<f64> {
    command.stdin(File::open(state)?).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status().context("cannot run it")?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(time)
}

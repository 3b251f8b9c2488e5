//! `bench-plugin`: how quick and how small `boathook-plugin` is, beside a plain
//! tonic service on the same kind of socket as the floor.
//!
//! Prints a line per figure, which begins with its name and ends with value,
//! unit and goal.

mod calls;
mod floor;
mod node;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use harness::{binaries, exit};

use crate::calls::Latency;
use crate::node::Node;

/// Calls of Allocate that are timed.
const CALLS: usize = 5000;

/// Restarts of the kubelet and of a device that are timed.
const TURNS: usize = 20;

/// How long the idle process is watched.
const IDLE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    exit::with("bench-plugin", run())
}

fn run() -> Result<()> {
    let size = std::fs::metadata(binaries::program("boathook-plugin")?)?.len();
    figure("binary", size as f64 / 1e6, "MB", Some(8.0));

    let floor = floor::latency(CALLS)?;
    figure("echo p50", floor.p50, "ms", None);
    figure("echo p99", floor.p99, "ms", None);

    let mut node = Node::start(&node::virtual_devices(64))?;
    let Latency { p50, p99 } = calls::allocate(&node.plugin_socket(), CALLS)?;
    figure("allocate p50", p50, "ms", Some(0.3));
    figure("allocate p99", p99, "ms", Some(1.0));
    let mut registered = Vec::new();
    for _ in 0..TURNS {
        registered.push(node.restart_kubelet()?);
    }
    figure(
        "registered after kubelet.sock",
        median(registered),
        "ms",
        Some(50.0),
    );
    figure("resident, 64 devices", node.resident()?, "MiB", Some(8.0));
    let (before, since) = (node.cpu_seconds()?, Instant::now());
    std::thread::sleep(IDLE);
    let idle = (node.cpu_seconds()? - before) / since.elapsed().as_secs_f64() * 100.0;
    figure("idle CPU", idle, "%", Some(0.05));
    drop(node);

    let mut node = Node::start(node::WATCHED)?;
    let mut unplugged = Vec::new();
    for _ in 0..TURNS {
        unplugged.push(node.unplug()?);
    }
    figure(
        "unplugged node reported",
        median(unplugged),
        "ms",
        Some(100.0),
    );
    Ok(())
}

fn figure(name: &str, value: f64, unit: &str, goal: Option<f64>) {
    let goal = goal.map_or("no goal: the floor".to_owned(), |goal| {
        let met = if value <= goal { "met" } else { "missed" };
        format!("goal {goal} {unit}: {met}")
    });
    println!("{name:<32} {value:>9.3} {unit}  {goal}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

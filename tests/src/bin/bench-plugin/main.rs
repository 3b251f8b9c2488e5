//! `bench-plugin`: how quick and how small `boathook-plugin` is, beside a plain
//! tonic service on the same kind of socket as the floor.
//!
//! Exits with 1 when a goal is missed.

mod calls;
mod figures;
mod grpc_baseline;
mod node;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use harness::{binaries, exit};

use crate::calls::Latency;
use crate::figures::Figures;
use crate::node::Node;

/// Calls of Allocate that are timed.
const CALLS: usize = 5000;

/// Calls of GetPreferredAllocation that are timed.
const CHOICES: usize = 500;

/// Restarts of the kubelet and of a device that are timed.
const TURNS: usize = 20;

/// How long the idle process is watched.
const IDLE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    exit::with("bench-plugin", run())
}

fn run() -> Result<()> {
    let mut figures = Figures::default();
    let size = std::fs::metadata(binaries::program("boathook-plugin")?)?.len();
    figures.compare("binary", size as f64 / 1e6, "MB", 8.0);

    let floor = grpc_baseline::latency(CALLS)?;
    figures.print("echo p50", floor.p50, "ms");
    figures.print("echo p99", floor.p99, "ms");
    few_devices(&mut figures)?;
    many_devices(&mut figures)?;

    let mut node = Node::start(node::WATCHED, node::USUAL)?;
    let unplugged = (0..TURNS).map(|_| node.unplug()).collect::<Result<_>>()?;
    figures.compare("unplugged node reported", median(unplugged), "ms", 100.0);
    figures.end()
}

fn few_devices(figures: &mut Figures) -> Result<()> {
    let mut node = Node::start(&node::virtual_devices(64), node::USUAL)?;
    let Latency { p50, p99 } = calls::allocate(&node.plugin_socket(), CALLS)?;
    figures.compare("allocate p50", p50, "ms", 0.3);
    figures.compare("allocate p99", p99, "ms", 1.0);
    let restarts = (0..TURNS).map(|_| node.restart_kubelet());
    let registered = median(restarts.collect::<Result<_>>()?);
    figures.compare("registered after kubelet.sock", registered, "ms", 50.0);
    figures.compare("resident, 64 devices", node.resident()?, "MiB", 8.0);
    let (before, since) = (node.cpu_seconds()?, Instant::now());
    std::thread::sleep(IDLE);
    let idle = (node.cpu_seconds()? - before) / since.elapsed().as_secs_f64() * 100.0;
    figures.compare("idle CPU", idle, "%", 0.05);
    Ok(())
}

fn many_devices(figures: &mut Figures) -> Result<()> {
    // Many scans, so that their memory is measured, too.
    let node = Node::start(&node::shares(1000, 10), node::OFTEN)?;
    let Latency { p50, p99 } = calls::preferred(&node.plugin_socket(), CHOICES, node.ids(), 16)?;
    figures.compare("16 of 10,000 chosen, p50", p50, "ms", 50.0);
    figures.compare("16 of 10,000 chosen, p99", p99, "ms", 50.0);
    // What the calls needed is part of it.
    figures.compare("resident, 10,000 devices", node.resident()?, "MiB", 24.0);
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

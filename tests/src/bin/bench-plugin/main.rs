//! `bench-plugin` measures the latency and the memory of `boathook-plugin`, and as the lower bound
//! a minimal tonic service on a Unix socket.
//!
//! The exit status is 1 if a goal is missed.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod calls;
mod node;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use harness::figure::{Figure, median, missed, table};
use harness::kubelet::other_plugin;
use harness::{binaries, exit};

use crate::node::Node;

/// The number of calls of Allocate that are timed.
const CALLS: usize = 5000;

/// The number of calls of GetPreferredAllocation that are timed.
const CHOICES: usize = 500;

/// The number of restarts of the kubelet, and of removals of a device, that are timed.
const TURNS: usize = 20;

/// The time over which the CPU use of the idle process is measured.
const IDLE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    exit::with("bench-plugin", run())
}

fn run() -> Result<()> {
    let size = std::fs::metadata(binaries::program("boathook-plugin")?)?.len();
    let mut figures = vec![Figure::new("binary", size as f64 / 1e6, "MB", Some(8.0))];

    // The cost of gRPC over a Unix socket, without any work of a plugin.
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("echo.sock");
    let _runtime = other_plugin::serve(&socket)?;
    let floor = calls::allocate(&socket, CALLS)?;
    figures.extend(floor.figures("echo", [None, None]));
    few_devices(&mut figures)?;
    many_devices(&mut figures)?;
    gpus(&mut figures)?;

    let mut node = Node::start(node::WATCHED, node::USUAL)?;
    let unplugged = (0..TURNS).map(|_| node.unplug()).collect::<Result<_>>()?;
    let unplugged = median(unplugged);
    figures.push(Figure::time(
        "unplugged node reported",
        unplugged,
        Some(100.0),
    ));
    println!("{}", table(&figures));
    match missed(&figures)[..] {
        [] => Ok(()),
        ref missed => bail!("goals missed: {}", missed.join(", ")),
    }
}

fn few_devices(figures: &mut Vec<Figure>) -> Result<()> {
    let mut node = Node::start(&node::virtual_devices(64), node::USUAL)?;
    let latency = calls::allocate(&node.plugin_socket(), CALLS)?;
    figures.extend(latency.figures("allocate", [Some(0.3), Some(1.0)]));
    let restarts = (0..TURNS).map(|_| node.restart_kubelet());
    let registered = median(restarts.collect::<Result<_>>()?);
    let name = "registered after kubelet.sock";
    figures.push(Figure::time(name, registered, Some(50.0)));
    let resident = node.resident()?;
    figures.push(Figure::new(
        "resident, 64 devices",
        resident,
        "MiB",
        Some(8.0),
    ));
    figures.push(idle_cpu("idle CPU", &node)?);
    Ok(())
}

/// Watches the idle process for [`IDLE`].
fn idle_cpu(name: &str, node: &Node) -> Result<Figure> {
    let (before, since) = (node.cpu_seconds()?, Instant::now());
    std::thread::sleep(IDLE);
    let idle = (node.cpu_seconds()? - before) / since.elapsed().as_secs_f64() * 100.0;
    Ok(Figure::new(name, idle, "%", Some(0.05)))
}

/// Four GPUs of a recorded host, with all classes that are shipped.
fn gpus(figures: &mut Vec<Figure>) -> Result<()> {
    let starts = (0..TURNS).map(|_| Ok(Node::start_gpus()?.started()));
    let started = median(starts.collect::<Result<_>>()?);
    let name = "4 GPUs, all classes: registered after the start";
    figures.push(Figure::time(name, started, Some(60.0)));
    let node = Node::start_gpus()?;
    ensure!(node.ids().len() == 4, "found {}", node.ids().join(", "));
    let cpu = idle_cpu("4 GPUs, all classes: idle CPU", &node)?;
    let (name, resident) = ("4 GPUs, all classes: resident", node.resident()?);
    figures.extend([Figure::new(name, resident, "MiB", Some(5.0)), cpu]);
    Ok(())
}

fn many_devices(figures: &mut Vec<Figure>) -> Result<()> {
    // The short interval leads to many scans, so that their memory is measured, too.
    let node = Node::start(&node::shares(1000, 10), node::OFTEN)?;
    let latency = calls::preferred(&node.plugin_socket(), CHOICES, node.ids(), 16)?;
    figures.extend(latency.figures("16 of 10,000 chosen", [Some(50.0), Some(50.0)]));
    // This is read after the calls, so that it includes the memory for them.
    let (name, resident) = ("resident, 10,000 devices", node.resident()?);
    figures.push(Figure::new(name, resident, "MiB", Some(24.0)));
    Ok(())
}

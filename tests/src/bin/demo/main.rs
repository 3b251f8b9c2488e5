//! `demo` runs the whole path from a vendor's class file to a real container on this machine and
//! prints request, plan and result as a table.
//!
//! The devices are files of a temporary directory, and the kubelet is a fake one in this program.
//! The plugin, the hook, runc and the container are real. With a class file as its argument the
//! program uses that class, on this machine or on a recorded host. It changes nothing outside of
//! temporary directories and fails if anything differs from the request.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod class;
mod comparison;
mod container;
mod plan;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow, ensure};
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::kubelet::Allocation;
use harness::node::Node;
use harness::{exit, privilege};

/// The indices of the devices that are allocated to the container.
const ALLOCATED: [usize; 2] = [3, 5];

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match arguments.as_slice() {
        [] => run(),
        [class] => class::run(class, None),
        [class, recording] => class::run(class, Some(recording)),
        _ => Err(anyhow!("usage: demo [CLASS.toml [host.txt]]")),
    };
    exit::with("demo", done)
}

fn run() -> Result<()> {
    let host = DemoHost::new()?;
    step(
        "host",
        "a directory with 64 NPUs, one vendor library and one class file",
    );

    let node = Node::start(&host, "", DemoHost::RESOURCE)?;
    let offered = node.devices();
    step(
        "plugin",
        &format!("registered {} with {offered} devices", DemoHost::RESOURCE),
    );

    let ids = ALLOCATED.map(|index| format!("npu-{index}"));
    let allocated = node.allocate(Allocation::of_ids(
        DemoHost::RESOURCE,
        &ids.each_ref().map(String::as_str),
    ))?;
    let variables = allocated
        .envs
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let variables = variables.collect::<Vec<_>>().join(" ");
    step(
        "allocate",
        &format!("{} of {offered}: {variables}", ids.join(" and ")),
    );

    on_each_cgroup_version(|view| container::show(&host, &node, &allocated, view))?;
    node.stop()?;
    step("plugin", "stopped, its socket removed");
    println!("demo: ok");
    Ok(())
}

/// Calls `show` for each cgroup version with which this machine can run containers. Fails if there
/// is none.
fn on_each_cgroup_version(show: impl Fn(CgroupView) -> Result<()>) -> Result<()> {
    let mut shown = 0;
    for view in CgroupView::ALL {
        match privilege::missing_for_runc(view) {
            Some(reason) => step("skipped", &format!("{view}: {reason}")),
            None => {
                show(view)?;
                shown += 1;
            }
        }
    }
    ensure!(shown > 0, "no container could be started on this machine");
    Ok(())
}

/// Prints a line about a step that is done.
fn step(what: &str, result: &str) {
    println!("{what:<9} {result}");
}

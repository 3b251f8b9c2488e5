//! The survival tables. Every cell is a container that opens its device, goes
//! through something, and tries to open it again, and one that it was not given.

mod engine;
mod old_systemd;
mod runtimes;

use std::thread;

use anyhow::{Result, bail};
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::probe::{Access, Questions};
use harness::systemd_host::{Distribution, SystemdHost};

use super::device_source::NODE;
use super::event::Event;
use super::running_container::RunningContainer;
use super::table::{Fate, Row, Table};

/// A host with this view of cgroups and with devices, if there can be one.
fn host(
    table: &str,
    distribution: Distribution,
    view: CgroupView,
) -> Option<(SystemdHost, DemoHost)> {
    if let Some(reason) = SystemdHost::missing(distribution, view) {
        skip::report(&format!("{table} ({view})"), &reason);
        return None;
    }
    let host = SystemdHost::boot(distribution, view).unwrap();
    let demo = DemoHost::new().unwrap();
    // For records of what is attached.
    std::fs::create_dir(demo.root().join("run")).unwrap();
    Some((host, demo))
}

/// Measures both views of cgroups at once, and compares the results with
/// the documentation.
fn compare(table: &Table, measured: fn(CgroupView) -> Vec<Row>) {
    let hosts = thread::scope(|scope| {
        let hosts = CgroupView::ALL.map(|view| scope.spawn(move || measured(view)));
        hosts.map(|host| host.join().unwrap())
    });
    let all_measured = hosts.iter().all(|rows| !rows.is_empty());
    let rows: Vec<_> = hosts.into_iter().flatten().collect();
    table.compare(&rows, all_measured);
}

/// The first column.
fn version(view: CgroupView) -> String {
    view.to_string().trim_start_matches("cgroup ").to_string()
}

/// What becomes of a container's device.
fn fate(
    host: &SystemdHost,
    demo: &DemoHost,
    container: &dyn RunningContainer,
    event: Event,
) -> Result<Fate> {
    if !opens(container, demo)? {
        bail!("the device does not open to begin with");
    }
    if !event.happen(host, container)? {
        return Ok(Fate::NoUnit);
    }
    Ok(if opens(container, demo)? {
        Fate::Kept
    } else {
        Fate::Lost
    })
}

/// Whether the container's device opens in it. One that it was not given must
/// not, whatever happened.
fn opens(container: &dyn RunningContainer, demo: &DemoHost) -> Result<bool> {
    let other = demo.device(DemoHost::UNLIKE);
    let made = "/dev/not-given";
    let questions = Questions::new()
        .path(NODE)
        .new_node(made, other.major, other.minor);
    let report = container.probe(&questions)?;
    let refused = Access::refused("EPERM");
    let attempt = report.new_node(made)?;
    if attempt.made != Access::Granted || attempt.read.as_ref() != Some(&refused) {
        bail!("a device that was not given: {attempt:?}");
    }
    match &report.path(NODE)?.read {
        Access::Granted => Ok(true),
        // One that was attached is gone with the container.
        access if [refused, Access::refused("ENOENT")].contains(access) => Ok(false),
        access => bail!("the device was given, and opening it gives {access}"),
    }
}

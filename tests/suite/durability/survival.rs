//! The survival tables. A row is a container that opens its device, goes through one event
//! after the other, and after each tries to open it again, and one that it was not given.
//! After an event by which it loses its device there is another container.

mod engine;
mod old_systemd;
mod runtimes;

use std::fs;
use std::thread;

use anyhow::{Context, Result, bail};
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::probe::{Access, Questions};
use harness::systemd_host::{Distribution, SystemdHost};

use super::device_source::{DeviceSource, NODE};
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

/// So often a container is looked at until it has its device again, if that is followed.
const LOOKS: usize = 10;

/// Lets the events happen that have no fate yet, until the container has lost its device.
fn go_through(
    events: &[Event],
    host: &SystemdHost,
    demo: &DemoHost,
    device_source: DeviceSource,
    container: &dyn RunningContainer,
    fates: &mut Vec<Fate>,
) -> Result<()> {
    if !opens(container, demo, [3, DemoHost::UNLIKE])? {
        bail!("the device does not open to begin with");
    }
    for event in &events[fates.len()..] {
        let fate = fate(host, demo, device_source, container, *event);
        fates.push(fate.with_context(|| event.to_string())?);
        if fates.last() == Some(&Fate::Lost) {
            break;
        }
    }
    Ok(())
}

/// Returns the result for a container's device.
fn fate(
    host: &SystemdHost,
    demo: &DemoHost,
    device_source: DeviceSource,
    container: &dyn RunningContainer,
    event: Event,
) -> Result<Fate> {
    if device_source.followed {
        start_follower(host, demo)?;
    }
    let fate = fate_of(host, demo, device_source, container, event);
    if device_source.followed {
        host.run("sh", &["-c", "kill $(cat /run/follower)"])?;
    }
    if event == Event::Replugged {
        fs::remove_file(demo.node(3))?;
        demo.device(3).make_node(&demo.node(3))?;
    }
    fate
}

fn fate_of(
    host: &SystemdHost,
    demo: &DemoHost,
    device_source: DeviceSource,
    container: &dyn RunningContainer,
    event: Event,
) -> Result<Fate> {
    if !event.happen(host, demo, container)? {
        return Ok(Fate::NoUnit);
    }
    let numbers = match event {
        Event::Replugged => [DemoHost::UNLIKE, 3],
        _ => [3, DemoHost::UNLIKE],
    };
    for _ in 0..if device_source.followed { LOOKS } else { 1 } {
        if opens(container, demo, numbers)? {
            return Ok(Fate::Kept);
        }
    }
    Ok(Fate::Lost)
}

/// Starts `boathook follow` in the host.
fn start_follower(host: &SystemdHost, demo: &DemoHost) -> Result<()> {
    let script = "mkfifo /run/following; \"$@\" > /run/following & echo $! > /run/follower; \
        read _ < /run/following; rm /run/following";
    let program = SystemdHost::program("boathook").display().to_string();
    let config = demo.config_file().display().to_string();
    let follow = [
        "sh", "-c", script, "sh", &program, "--config", &config, "follow",
    ];
    host.run_silently(&follow.map(str::to_owned))
}

/// Whether the container's device opens in it, which has the first of these numbers. The other
/// one must not, whatever happened; if it was the device's own, that is what is asked.
fn opens(
    container: &dyn RunningContainer,
    demo: &DemoHost,
    [number, other]: [usize; 2],
) -> Result<bool> {
    let was_own = other == 3;
    let [number, other] = [number, other].map(|index| demo.device(index));
    let made = "/dev/not-given";
    let questions = Questions::new().path(NODE);
    let questions = questions.new_node(made, other.major, other.minor);
    let report = container.probe(&questions)?;
    let refused = Access::refused("EPERM");
    let attempt = report.new_node(made)?;
    let is_refused = attempt.read.as_ref() == Some(&refused);
    if attempt.made != Access::Granted || !is_refused && !was_own {
        bail!("a device that was not given: {attempt:?}");
    }
    let seen = report.path(NODE)?;
    match &seen.read {
        Access::Granted => Ok(is_refused && seen.number() == Some(number.number())),
        // One that was attached is gone with the container.
        access if [refused, Access::refused("ENOENT")].contains(access) => Ok(false),
        access => bail!("the device was given, and opening it gives {access}"),
    }
}

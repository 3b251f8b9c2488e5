//! `boathook list --watch`: prints a line for each device that comes, goes or changes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use device_class::config::Config;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;

use super::scan::Scan;
use super::{ListOptions, print_scan};
use crate::command::CommandError;
use crate::command::devices::ListedDevice;
use crate::command::output::Style;
use crate::exit::ExitCode;
use crate::log;
use crate::sys::uevent::Uevents;

/// The time in milliseconds after which the host is scanned again although no event came: the
/// kernel does not report all changes, such as those of a driver's health.
const RESCAN_MILLISECONDS: u16 = 5000;

/// The time that udev gets to create its links after an event.
const UDEV_DELAY: Duration = Duration::from_millis(200);

type Devices = BTreeMap<(String, String), ListedDevice>;

/// Prints the devices, and then each change, until the process is stopped or nobody reads its
/// output.
pub(in crate::command) fn watch(
    options: &ListOptions<'_>,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    // A container without the host's network namespace gets no events, and rescans remain.
    let events = Uevents::open().ok();
    let scan = Scan::run(&options.classes(), None, config)?;
    scan.report_problems();
    if options.json {
        write_line(&scan.to_json())?;
    } else {
        let mut out = io::stdout().lock();
        print_scan(&scan, options, config, Style::of_stdout(), &mut out)?;
    }
    let mut devices = index_devices(scan);
    loop {
        wait(events.as_ref()).map_err(CommandError::Uevents)?;
        let current = index_devices(Scan::run(&options.classes(), None, config)?);
        for (change, device) in find_changes(&devices, &current) {
            report(change, device, options.json)?;
        }
        devices = current;
    }
}

fn index_devices(scan: Scan) -> Devices {
    let key = |device: &ListedDevice| (device.class.clone(), device.id.clone());
    let devices = scan.devices.into_iter();
    devices.map(|device| (key(&device), device)).collect()
}

/// Waits for an event of a device, or for the time of the next scan.
fn wait(events: Option<&Uevents>) -> Result<(), Errno> {
    let mut poll_fds: Vec<_> = events
        .iter()
        .map(|events| PollFd::new(events.as_fd(), PollFlags::POLLIN))
        .collect();
    match poll(&mut poll_fds, PollTimeout::from(RESCAN_MILLISECONDS)) {
        Ok(0) | Err(Errno::EINTR) => return Ok(()),
        Err(errno) => return Err(errno),
        Ok(_) => {}
    }
    std::thread::sleep(UDEV_DELAY);
    events.map_or(Ok(false), Uevents::take)?;
    Ok(())
}

/// Returns the devices that went, came or changed, in this order, each with the word for it.
fn find_changes<'a>(
    previous: &'a Devices,
    current: &'a Devices,
) -> Vec<(&'static str, &'a ListedDevice)> {
    let removed = previous
        .iter()
        .filter(|(key, _)| !current.contains_key(*key));
    let removed = removed.map(|(_, device)| ("removed", device));
    let present = current
        .iter()
        .filter_map(|(key, device)| match previous.get(key) {
            None => Some(("added", device)),
            Some(old) if old != device => Some(("changed", device)),
            Some(_) => None,
        });
    removed.chain(present).collect()
}

fn report(change: &str, device: &ListedDevice, json: bool) -> Result<(), CommandError> {
    let time = log::now();
    if json {
        return write_line(&json!({ "time": time, "change": change, "device": device }));
    }
    let health = match &device.reason {
        Some(reason) if change != "removed" => format!("  unhealthy: {reason}"),
        _ => String::new(),
    };
    let nodes = device.nodes.join(" ");
    let line = format!(
        "{time} {change}  {}  {}  {}  {nodes}{health}",
        device.class, device.id, device.variable
    );
    writeln!(io::stdout().lock(), "{}", printable::line(line.trim_end()))?;
    Ok(())
}

/// Writes a value as one line, so that a reader of the output can parse each line by itself.
fn write_line(value: &serde_json::Value) -> Result<(), CommandError> {
    writeln!(
        io::stdout().lock(),
        "{}",
        printable::json(&value.to_string())
    )?;
    Ok(())
}

//! Implements `boathook list --watch`, which prints a line for each device that is added, removed
//! or changed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use device_class::config::Config;
use hook::exit::ExitCode;
use hook::log;
use hook::sys::uevent::UeventReceiver;
use host_files::printable;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;

use super::scan::Scan;
use super::{ListOptions, print_scan};
use crate::command::CommandError;
use crate::command::devices::ListedDevice;
use crate::command::output::Style;

/// The time in milliseconds after which the host is scanned again if no event arrives. The kernel
/// sends no event for some changes, for example when a device becomes unhealthy.
const RESCAN_INTERVAL_MS: u16 = 5000;

/// The time to wait after a kernel event, in which udev creates the device's links.
const UDEV_SETTLE_TIME: Duration = Duration::from_millis(200);

type DevicesByClassAndId = BTreeMap<(String, String), ListedDevice>;

/// Prints the devices, and then each change. Runs until this process is stopped or its output is
/// closed.
pub(in crate::command) fn watch(
    options: &ListOptions<'_>,
    config: &Config,
) -> Result<ExitCode, CommandError> {
    // A container without the host's network namespace receives no uevents. There, only the regular
    // scans find changes.
    let event_receiver = UeventReceiver::open().ok();
    let scan = Scan::scan_host(&options.class_selection(), None, config)?;
    scan.log_problems();
    if options.as_json {
        write_json_line(&scan.to_json())?;
    } else {
        let mut out = io::stdout().lock();
        print_scan(&scan, options, config, Style::for_stdout(), &mut out)?;
    }
    let mut devices = index_devices(scan);
    loop {
        wait_for_change(event_receiver.as_ref()).map_err(CommandError::Uevents)?;
        let current_devices =
            index_devices(Scan::scan_host(&options.class_selection(), None, config)?);
        for (change, device) in find_changes(&devices, &current_devices) {
            report_change(change, device, options.as_json)?;
        }
        devices = current_devices;
    }
}

fn index_devices(scan: Scan) -> DevicesByClassAndId {
    let key = |device: &ListedDevice| (device.class.clone(), device.id.clone());
    let devices = scan.devices.into_iter();
    devices.map(|device| (key(&device), device)).collect()
}

/// Waits until a uevent arrives or the time for the next regular scan has come.
fn wait_for_change(event_receiver: Option<&UeventReceiver>) -> Result<(), Errno> {
    let mut poll_fds: Vec<_> = event_receiver
        .iter()
        .map(|event_receiver| PollFd::new(event_receiver.as_fd(), PollFlags::POLLIN))
        .collect();
    match poll(&mut poll_fds, PollTimeout::from(RESCAN_INTERVAL_MS)) {
        Ok(0) | Err(Errno::EINTR) => return Ok(()),
        Err(errno) => return Err(errno),
        Ok(_) => {}
    }
    std::thread::sleep(UDEV_SETTLE_TIME);
    event_receiver.map_or(Ok(false), UeventReceiver::receive_pending)?;
    Ok(())
}

/// Returns the devices that were removed, added or changed, each with the name of the change, such
/// as `added`. The removed devices come first.
fn find_changes<'a>(
    previous_devices: &'a DevicesByClassAndId,
    current_devices: &'a DevicesByClassAndId,
) -> Vec<(&'static str, &'a ListedDevice)> {
    let removed_entries = previous_devices
        .iter()
        .filter(|(key, _)| !current_devices.contains_key(*key));
    let removed_devices = removed_entries.map(|(_, device)| ("removed", device));
    let present_devices = current_devices
        .iter()
        .filter_map(|(key, device)| match previous_devices.get(key) {
            None => Some(("added", device)),
            Some(previous_device) if previous_device != device => Some(("changed", device)),
            Some(_) => None,
        });
    removed_devices.chain(present_devices).collect()
}

fn report_change(change: &str, device: &ListedDevice, as_json: bool) -> Result<(), CommandError> {
    let time = log::format_current_time();
    if as_json {
        return write_json_line(&json!({ "time": time, "change": change, "device": device }));
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
    writeln!(
        io::stdout().lock(),
        "{}",
        printable::escape_line(line.trim_end())
    )?;
    Ok(())
}

/// Writes a JSON value as one line, so that a program can parse each line of the output separately.
fn write_json_line(value: &serde_json::Value) -> Result<(), CommandError> {
    writeln!(
        io::stdout().lock(),
        "{}",
        printable::escape_json(&value.to_string())
    )?;
    Ok(())
}

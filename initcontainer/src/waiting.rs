//! Finds containers that wait for devices in vain. They wait in vain because `boathook follow` does
//! not run: it would attach the devices when they appear.

use std::path::Path;
use std::{fs, io};

use injection_plan::follower::{FOLLOWER_NAME, START_COMMANDS, is_running};
use rooted_path::{read_own_text, read_regular_text};
use serde_json::Value;

use crate::host::Host;
use crate::layout::RUN_DIR;

/// The maximum size of an attachment record, in bytes. The hook writes these records.
const MAX_ATTACHMENT_RECORD_BYTES: u64 = 4 << 20;
/// The maximum number of bytes that are read from `/proc/PID/stat`. The kernel writes some hundred
/// bytes.
const MAX_STAT_BYTES: u64 = 4096;

/// Returns a note for the operator if containers wait for devices but `boathook follow` does not
/// run.
pub(crate) fn describe_missing_follower(host: &Host) -> Option<String> {
    let run_dir = host.as_path().join(RUN_DIR.trim_start_matches('/'));
    let records = fs::read_dir(run_dir.join("attached")).ok()?;
    let waiting_count = records
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter(|entry| is_waiting_for_device(&entry.path(), host).unwrap_or_default())
        .count();
    if waiting_count == 0 || is_running(&run_dir).unwrap_or(true) {
        return None;
    }
    Some(format!(
        "{FOLLOWER_NAME} does not run, and {waiting_count} containers wait for devices: {START_COMMANDS}"
    ))
}

/// Returns whether the container of an attachment record runs and waits for a device. It may wait
/// for a device that its request names. If it requests all devices of a class, it waits only if it
/// has no device of that class.
fn is_waiting_for_device(record_path: &Path, host: &Host) -> io::Result<bool> {
    let record: Value =
        serde_json::from_str(&read_own_text(record_path, MAX_ATTACHMENT_RECORD_BYTES)?)?;
    let get_list = |key: &str| record[key].as_array().map_or(&[][..], Vec::as_slice);
    let lacks_device = |request: &Value| {
        let mut devices = get_list("devices").iter();
        request["awaited"] != "all" || !devices.any(|device| device["class"] == request["class"])
    };
    if !get_list("waiting").iter().any(lacks_device) {
        return Ok(false);
    }
    // When a container ends, its record stays until the next container with a record starts.
    // Therefore this checks that the process still exists and has the recorded start time.
    let process_dir = host.as_path().join("proc").join(record["pid"].to_string());
    let stat = read_regular_text(&process_dir.join("stat"), MAX_STAT_BYTES)?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start_time = fields.split_whitespace().nth(19);
    Ok(start_time == Some(record["started"].to_string().as_str()))
}

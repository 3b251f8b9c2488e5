//! Finds containers that wait for devices while no `boathook follow` runs, which would give them.

use std::path::Path;
use std::{fs, io};

use injection_plan::follower::{FOLLOWER, START_FOLLOWER, is_running};
use rooted_path::{read_own_text, read_regular_text};
use serde_json::Value;

use crate::host::Host;
use crate::layout::RUN;

/// The size in bytes of the largest attachment record, which the hook writes.
const MAX_RECORD: u64 = 4 << 20;
/// The size limit in bytes of `/proc/PID/stat`.
const MAX_STAT: u64 = 4096;

/// Returns a line for an operator if a container waits and no follower runs.
pub(crate) fn describe_missing_follower(host: &Host) -> Option<String> {
    let run = host.as_path().join(RUN.trim_start_matches('/'));
    let records = fs::read_dir(run.join("attached")).ok()?;
    let count = records
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter(|entry| is_waiting(&entry.path(), host).unwrap_or_default())
        .count();
    if count == 0 || is_running(&run).unwrap_or(true) {
        return None;
    }
    Some(format!(
        "{FOLLOWER} does not run, and {count} containers wait for devices: {START_FOLLOWER}"
    ))
}

/// Returns whether the container of an attachment record runs and waits for a device that its
/// request names, or for all of a class and has none.
fn is_waiting(record: &Path, host: &Host) -> io::Result<bool> {
    let record: Value = serde_json::from_str(&read_own_text(record, MAX_RECORD)?)?;
    let list = |key: &str| record[key].as_array().map_or(&[][..], Vec::as_slice);
    let lacks_device = |awaited: &Value| {
        let mut devices = list("devices").iter();
        awaited["awaited"] != "all" || !devices.any(|device| device["class"] == awaited["class"])
    };
    if !list("waiting").iter().any(lacks_device) {
        return Ok(false);
    }
    // A record stays until the next container with one starts.
    let process = host.as_path().join("proc").join(record["pid"].to_string());
    let stat = read_regular_text(&process.join("stat"), MAX_STAT)?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start_time = after_name.split_whitespace().nth(19);
    Ok(start_time == Some(record["started"].to_string().as_str()))
}

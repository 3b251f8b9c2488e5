//! Finds containers that wait for devices that the host does not have yet, while `boathook follow`
//! does not run. That program attaches the devices when they appear.

use std::path::Path;
use std::{fs, io};

use host_files::rooted_path::{read_own_text, read_regular_text};
use injection_plan::follower::{FOLLOWER_NAME, START_COMMANDS, is_running};
use serde_json::Value;

use crate::host::Host;
use crate::layout::RUN_DIR;

/// The maximum size in bytes of an attachment record, in which the hook records what it did to one
/// container. A larger record is skipped.
const MAX_ATTACHMENT_RECORD_BYTES: u64 = 4 << 20;
/// The maximum number of bytes that are read from `/proc/PID/stat`. The kernel writes some hundred
/// bytes.
const MAX_STAT_BYTES: u64 = 4096;

/// Returns a note with the number of containers that wait for devices, if `boathook follow` does
/// not run.
pub(crate) fn describe_missing_follower(host: &Host) -> Option<String> {
    let run_dir = host.as_path().join(RUN_DIR.trim_start_matches('/'));
    let records = fs::read_dir(run_dir.join("attached")).ok()?;
    let waiting_count = records
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter(|entry| has_unfulfilled_request(&entry.path(), host).unwrap_or_default())
        .count();
    if waiting_count == 0 || is_running(&run_dir).unwrap_or(true) {
        return None;
    }
    Some(format!(
        "{FOLLOWER_NAME} does not run, and {waiting_count} containers wait for devices: {START_COMMANDS}"
    ))
}

/// Returns whether a container is running and is waiting for a device. The attachment record at
/// `record_path` belongs to the container. A container that requests all devices of a class waits
/// only while it has no device of that class.
fn has_unfulfilled_request(record_path: &Path, host: &Host) -> io::Result<bool> {
    let record: Value =
        serde_json::from_str(&read_own_text(record_path, MAX_ATTACHMENT_RECORD_BYTES)?)?;
    let lacks_device = |request: &Value| {
        let mut devices = list_values(&record, "devices").iter();
        !devices.any(|device| {
            let is_requested = request["awaited"] == "all" || request["device"] == device["device"];
            is_requested && request["class"] == device["class"] && has_device(&record, device, host)
        })
    };
    if !list_values(&record, "waiting").iter().any(lacks_device) {
        return Ok(false);
    }
    // When a container ends, its record stays until the next container with a record starts. So the
    // process must still exist, with the recorded start time: field 22 of /proc/PID/stat (proc(5)).
    let process_dir = host.as_path().join("proc").join(record["pid"].to_string());
    let stat = read_regular_text(&process_dir.join("stat"), MAX_STAT_BYTES)?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let start_time = fields.split_whitespace().nth(19);
    Ok(start_time == Some(record["started"].to_string().as_str()))
}

/// Returns whether the container of an attachment record has a recorded device. It has if the
/// record contains a device rule for this device, and the device file still exists on the host. A
/// container of a rootless engine has no device rules. There, a file of the device in the container
/// is enough.
fn has_device(record: &Value, device: &Value, host: &Host) -> bool {
    let get_text = |key: &str| device[key].as_str().unwrap_or_default();
    let owner = format!("{} {}", get_text("class"), get_text("device"));
    let belongs_to_device =
        |entry: &&Value| list_values(entry, "for").iter().any(|text| *text == *owner);
    let all_rules = list_values(record, "rules").iter();
    let mut rules = all_rules.filter(belongs_to_device).peekable();
    if rules.peek().is_none() {
        return list_values(record, "made")
            .iter()
            .any(|file| belongs_to_device(&file));
    }
    rules.any(|rule| {
        let node_path = rule["host"]["path"].as_str();
        node_path.is_none_or(|path| {
            let path = host.as_path().join(path.trim_start_matches('/'));
            path.symlink_metadata().is_ok()
        })
    })
}

/// Returns the elements of the array `key` of a JSON object, or no elements if the object has no
/// such array.
fn list_values<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make their own files")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The sticks of the records: `dev/a` exists on the host and `dev/gone` does not.
    #[test]
    fn a_container_waits_for_what_it_requested_and_does_not_have() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("proc/7")).unwrap();
        fs::create_dir(path("dev")).unwrap();
        fs::write(path("dev/a"), "").unwrap();
        let stat = format!("7 (sh) {}", ["0"; 19].join(" "));
        fs::write(path("proc/7/stat"), stat + " 9 0\n").unwrap();
        let host = Host::open(root.path()).unwrap();
        let awaited = r#"{"class":"sticks","awaited":{"device":{"name":"\"x1\""}}}"#;
        let known = awaited.replace(r#","awaited""#, r#","device":"stick-x1","awaited""#);
        let all = r#"{"class":"sticks","awaited":"all"}"#;
        let device = r#"{"class":"sticks","device":"stick-x1"}"#;
        let rule_at = |path: &str| {
            format!(r#"{{"rule":"c 5:1 rw","for":["sticks stick-x1"],"host":{{"path":"{path}"}}}}"#)
        };
        let (present, gone) = (rule_at("/dev/a"), rule_at("/dev/gone"));
        let file = r#"{"path":"/dev/a","for":["sticks stick-x1"]}"#;
        for (waiting, devices, rules, files, is_waiting) in [
            ("", device, "", "", false),
            (awaited, "", "", "", true),
            (&known, device, &present, file, false),
            (&known, device, &gone, file, true),
            (&known, device, "", "", true),
            (&known, device, "", file, false),
            (all, "", "", "", true),
            (all, device, &present, file, false),
            (all, device, &gone, file, true),
            (all, device, "", "", true),
        ] {
            let record = format!(
                r#"{{"pid":7,"started":9,"waiting":[{waiting}],"devices":[{devices}],"rules":[{rules}],"made":[{files}]}}"#
            );
            fs::write(path("record"), &record).unwrap();
            fs::set_permissions(path("record"), fs::Permissions::from_mode(0o600)).unwrap();
            let result = has_unfulfilled_request(&path("record"), &host).unwrap();
            assert_eq!(result, is_waiting, "{record}");
        }
    }
}

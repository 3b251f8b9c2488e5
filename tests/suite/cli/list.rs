//! `boathook list` and `boathook check`.

use harness::demo_host::HostDirectory;
use serde_json::Value;

use super::{boathook, code};

#[test]
fn every_device_is_listed() {
    let host = HostDirectory::new().unwrap();
    let ran = boathook(&host, &["list"], b"");
    assert_eq!(ran.status.code(), Some(code::SUCCESS), "{}", ran.stderr);
    let devices: Vec<_> = ran
        .stdout
        .lines()
        .filter(|line| line.contains("dummy.com/npu"))
        .collect();
    assert_eq!(devices.len(), 64, "{}", ran.stdout);
    assert!(
        devices[63].contains("npu-63") && devices[63].contains("healthy"),
        "{}",
        devices[63]
    );

    let ran = boathook(&host, &["list", "--json"], b"");
    let listed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 64);
    assert_eq!(listed[10]["id"], "npu-10");
    assert_eq!(listed[10]["healthy"], true);
}

#[test]
fn an_empty_host_has_nothing_to_list() {
    let host = HostDirectory::new().unwrap();
    host.add_class("dummy-npu", "").unwrap();
    let ran = boathook(&host, &["list", "--json"], b"");
    assert_eq!(ran.stdout.trim(), "[]");
}

/// Each line has its verdict; what is wrong says what to do.
#[test]
fn a_check_tells_of_this_host() {
    let host = HostDirectory::new().unwrap();
    let ran = boathook(&host, &["check"], b"");
    assert!(matches!(ran.status.code(), Some(0 | 1)), "{}", ran.stderr);
    for topic in ["openat2", "cgroup", "dummy-npu"] {
        assert!(ran.stdout.contains(topic), "no `{topic}` in {}", ran.stdout);
    }
    for line in ran.stdout.lines().filter(|line| !line.trim().is_empty()) {
        let verdict = ["ok", "warning", "error"]
            .iter()
            .any(|word| line.contains(word));
        assert!(verdict, "no verdict in {line}");
    }
}

//! `boathook-runtime`, before a runtime that prints how it was called.

use std::fs;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::compile::{self, Libc};
use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::trace::{self, STRACE};

const CLASS: &str = r#"
    version = 1
    resource = "dummy.com/npu"
    request = { env = "DUMMY_VISIBLE_DEVICES" }
    [[discover]]
    count = 4
    [device]
    id = "npu-{index}"
    [[edits]]
    files = ["/etc/dummy-npu.conf"]
"#;

/// config.json is the old one or the new one, and the runtime is called with the
/// new one only.
#[test]
fn every_call_fails_once() {
    if let Some(reason) = trace::missing() {
        return skip::report("failing system calls of the wrapper", &reason);
    }
    let host = HostDirectory::new().unwrap();
    let runtime = compile::program("fake-runtime.c", Libc::Glibc, &["-static"]).unwrap();
    host.add_class("dummy-npu", CLASS).unwrap();
    host.add_file("/etc/dummy-npu.conf", "").unwrap();
    host.write_config(&format!("[runtime]\npath = {runtime:?}\n"))
        .unwrap();

    let recorded = host.path().join("calls");
    let whole = bundle();
    let called = create(&host, &trace::recording(&recorded), &whole)
        .success()
        .unwrap();
    let [old, new] = [config(&bundle()), config(&whole)];
    assert_ne!(old, new, "the wrapper added nothing: {}", called.stdout);

    for fault in trace::faults(&recorded, 40) {
        let bundle = bundle();
        let ran = create(&host, &fault.arguments(), &bundle);
        assert!(!ran.stderr.contains("panicked"), "{fault}: {}", ran.stderr);
        let now = config(&bundle);
        if ran.status.success() {
            // A directory of class files need not exist. Without one the container
            // requests nothing.
            if now == old && fault.hides(&host.classes()) {
                continue;
            }
            assert_eq!(now, new, "{fault}: the runtime was called without a hook");
        } else {
            assert!(now == old || now == new, "{fault}: {now}");
            let said = fault.silences() || ran.stderr.contains("boathook");
            assert!(said, "{fault}: {}", ran.stderr);
        }
        let names = fs::read_dir(bundle.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            fault.kills() || names == ["config.json"],
            "{fault} leaves {names:?}"
        );
    }
}

fn bundle() -> TempDir {
    let directory = harness::scratch::directory("bundle").unwrap();
    let config = json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"args": ["true"], "cwd": "/", "env": [format!("{}=all", DemoHost::VARIABLE)]},
    });
    fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
    directory
}

fn config(bundle: &TempDir) -> Value {
    let text = fs::read(bundle.path().join("config.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn create(host: &HostDirectory, strace: &[String], bundle: &TempDir) -> Captured {
    let mut command = Command::new(binaries::program("private-run").unwrap());
    command
        .arg(STRACE)
        .args(strace)
        .arg(binaries::program("boathook-runtime").unwrap())
        .env("BOATHOOK_CONFIG", host.config_file())
        .args(["create", "--bundle"])
        .arg(bundle.path())
        .arg("the-container");
    Captured::run(&mut command).unwrap()
}

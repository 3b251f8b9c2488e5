//! The wrapper becomes the real runtime, with every argument as it was.

use std::fs;
use std::iter;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use harness::captured::Captured;
use serde_json::json;

use super::{Lab, arguments, bundle, config, config_of};

#[test]
fn the_arguments_are_the_real_runtimes() {
    let lab = Lab::new();
    let bundle = bundle(&config("0").to_string());
    let bundle = bundle.path().to_str().unwrap();
    let lines: [&[&str]; 7] = [
        &["--version"],
        &["--root", "/r", "state", "c1"],
        &["delete", "--force", "create"],
        &["exec", "c1", "sh", "-c", "run --bundle /b \"x\" 'y'"],
        &["kill", "c1", "", "TERM"],
        &["restore", "--bundle", bundle, "c1"],
        &[
            "--systemd-cgroup",
            "create",
            "--bundle",
            bundle,
            "--no-pivot",
            "c1",
        ],
    ];
    for line in lines {
        let ran = lab.run(line).success().unwrap();
        let runtime = lab.runtime.to_str().unwrap();
        assert_eq!(arguments(&ran), [&[runtime], line].concat());
    }
}

/// One process from start to end: no other process is between the engine
/// and its runtime, neither for signals nor for output.
#[test]
fn the_wrapper_is_gone_when_the_runtime_runs() {
    let lab = Lab::new();
    let mut command = lab.command(["state", "c1"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let own = format!("pid {}\n", child.id());
    let printed = child.wait_with_output().unwrap().stdout;
    assert!(printed.starts_with(own.as_bytes()), "{printed:?}");
}

#[test]
fn the_way_it_ends_is_the_real_runtimes() {
    let lab = Lab::new();
    for code in [0, 1, 125, 255] {
        let mut command = lab.command(["start", "c1"]);
        let ran = Captured::run(command.env("FAKE_EXIT", code.to_string())).unwrap();
        assert_eq!(ran.status.code(), Some(code));
    }
    for signal in [libc::SIGTERM, libc::SIGPIPE, libc::SIGKILL] {
        let mut command = lab.command(["start", "c1"]);
        let ran = Captured::run(command.env("FAKE_SIGNAL", signal.to_string())).unwrap();
        assert_eq!(ran.status.signal(), Some(signal));
    }
}

#[test]
fn stdio_is_the_real_runtimes() {
    let lab = Lab::new();
    let mut command = lab.command(["exec", "c1"]);
    let ran = Captured::run_with_input(&mut command, b"typed").unwrap();
    assert!(ran.stdout.ends_with("arg c1\ntyped"), "{}", ran.stdout);
    assert_eq!(ran.stderr, "said on stderr\n");
}

/// For a container without a request nothing is written, not even the hook.
#[test]
fn a_container_without_a_request_is_left_alone() {
    let lab = Lab::new();
    for value in ["", "void"] {
        let text = config(value).to_string();
        let bundle = bundle(&text);
        lab.create(bundle.path()).success().unwrap();
        assert_eq!(config_of(bundle.path()), text);
    }
}

/// An error in the configuration of devices stops no container that runs from being entered
/// or stopped, and none that requests nothing from being started.
#[test]
fn a_mistake_in_the_configuration_concerns_only_who_requests_devices() {
    let lab = Lab::new();
    let nothing = json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}}).to_string();
    let nothing = bundle(&nothing);
    let requests = bundle(&config("all").to_string());
    let text = config_of(nothing.path());
    for (before, after) in [
        ("unheard_of = 1", ""),
        ("", "[class.dummy-npu"),
        ("more = ", ""),
        ("", "[class.dummy-npu]\nenable = false"),
    ] {
        let classes = lab.host.classes();
        let mistake = format!(
            "classes = [{classes:?}]\n{before}\n[runtime] # the real one\npath = {:?}\n{after}\n",
            lab.runtime
        );
        fs::write(lab.host.config_file(), &mistake).unwrap();
        for action in ["kill", "exec", "delete"] {
            let called = lab.run([action, "c1"]).success().unwrap();
            assert_eq!(arguments(&called)[1..], [action, "c1"], "{mistake}");
        }
        lab.create(nothing.path()).success().unwrap();
        assert_eq!(config_of(nothing.path()), text, "{mistake}");
        let refused = lab.create(requests.path());
        assert_eq!(refused.status.code(), Some(3), "{mistake}: {refused:?}");
    }
}

/// A person at a terminal is told whose program it is. An engine, which reads a pipe, gets
/// the version of the real runtime as it is.
#[test]
fn the_version_is_the_real_runtimes() {
    let lab = Lab::new();
    lab.configure_script("#!/bin/sh\necho runc version 1.5.0\n");
    let introduction = format!(
        "boathook-runtime {} of Boathook calls ",
        env!("CARGO_PKG_VERSION")
    );
    for option in ["--version", "--help"] {
        let ran = lab.run([option]).success().unwrap();
        assert_eq!(ran.stdout, "runc version 1.5.0\n");
        assert_eq!(ran.stderr, "");
        let command = lab.command([option]);
        let words = iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
        // It gives the command a terminal.
        let mut terminal = Command::new("script");
        terminal.args(["--quiet", "--return", "--command", &words.join(" ")]);
        terminal
            .arg("/dev/null")
            .env("BOATHOOK_CONFIG", lab.host.config_file())
            .stdin(Stdio::null());
        let ran = Captured::run(&mut terminal).unwrap().success().unwrap();
        let (first, rest) = ran.stdout.split_once("\r\n").unwrap();
        assert!(first.starts_with(&introduction), "{ran:?}");
        assert_eq!(rest, "runc version 1.5.0\r\n");
    }
}

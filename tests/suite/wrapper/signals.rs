//! The deadline is the wrapper's and not the runtime's, which gets its signals as
//! the engine has set them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::binaries;
use harness::captured::Captured;

use super::Lab;
use crate::said::assert_says;

#[test]
fn the_runtime_has_the_engines_signals() {
    let lab = Lab::new();
    lab.configure_script("#!/bin/bash\nexec grep -E '^Sig(Blk|Ign)' /proc/self/status\n");
    for option in [
        "--default-signal",
        "--ignore-signal=ALRM,XFSZ",
        "--block-signal=ALRM,XFSZ",
    ] {
        let run = |program: &mut Command| Captured::run(program).unwrap().success().unwrap().stdout;
        let mut direct = Command::new("/usr/bin/env");
        direct.args([option, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
        let mut wrapped = Command::new("/usr/bin/env");
        wrapped
            .arg(option)
            .arg(binaries::program("boathook-runtime").unwrap())
            .args(["state", "c1"])
            .env("BOATHOOK_CONFIG", lab.host.config_file());
        assert_eq!(run(&mut direct), run(&mut wrapped), "{option}");
    }
}

/// Ten seconds, at the same time: an engine that never finishes the resources of
/// an update, and a runtime that runs for longer.
#[test]
fn the_deadline_ends_the_wrapper_and_not_the_runtime() {
    let lab = Lab::new();
    lab.configure_script("#!/bin/bash\nsleep 12; echo still here\n");
    let started = Instant::now();
    let runtime = lab
        .command(["state", "c1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut waiting = lab
        .command(["update", "--resources", "-", "c1"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Held until the wrapper has ended.
    let stdin = waiting.stdin.take();
    let ended = waiting.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(ended.status.code(), Some(7));
    assert!(started.elapsed() < Duration::from_secs(15));
    let message = String::from_utf8(ended.stderr).unwrap();
    assert_says(&message, &["deadline exceeded while reading"]);
    let ran = runtime.wait_with_output().unwrap();
    assert_eq!(ran.stdout, b"still here\n");
}

//! A hook that takes too long ends by itself, with a message that names the
//! stage.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::binaries;
use harness::demo_host::HostDirectory;

use super::code;

/// A runtime that never finishes the container's state, and that blocks or
/// ignores the signal by which the hook ends.
#[test]
fn a_state_that_never_ends_is_given_up() {
    let host = HostDirectory::new().unwrap();
    for options in [&[][..], &["--block-signal=ALRM"], &["--ignore-signal=ALRM"]] {
        let started = Instant::now();
        let mut hook = Command::new("/usr/bin/env")
            .args(options)
            .arg(binaries::program("boathook-hook").unwrap())
            .arg("--config")
            .arg(host.config_file())
            .args(["--deadline", "1", "prestart"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Held until the hook has ended.
        let stdin = hook.stdin.take();
        let ended = hook.wait_with_output().unwrap();
        drop(stdin);
        let printed = String::from_utf8(ended.stderr).unwrap();
        let code = ended.status.code();
        assert_eq!(code, Some(code::DEADLINE), "{options:?} {printed}");
        assert_eq!(
            printed,
            "boathook: deadline exceeded while reading the container's state and configuration\n"
        );
        assert!(started.elapsed() < Duration::from_secs(5), "{options:?}");
    }
}

//! `boathook-init`, on a host's root in a directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::class_files;
use harness::compile::{self, Libc};
use tempfile::TempDir;

use super::trace::{self, STRACE};
use crate::tree::listing;

/// What was there stays, and the next installation completes whatever a failed
/// one began.
#[test]
fn every_call_fails_once() {
    if let Some(reason) = trace::missing() {
        return skip::report("failing system calls of the installer", &reason);
    }
    let release = release();
    let whole = host();
    let recorded = release.path().join("calls");
    let arguments = trace::recording(&recorded);
    install(&arguments, &whole, release.path())
        .success()
        .unwrap();
    let (index, complete) = split_listing(&whole);
    assert_eq!(index.len(), 1, "{index:?}");

    let half_made = ["flock", "mkdirat", "fsync", "fchmod"]
        .into_iter()
        .flat_map(|call| trace::disk_faults(&recorded, call));
    for fault in trace::faults(&recorded, 30).chain(half_made) {
        let host = host();
        let ran = install(&fault.arguments(), &host, release.path());
        assert!(!ran.stderr.contains("panicked"), "{fault}: {}", ran.stderr);
        if ran.status.success() {
            let is_lock = |line: &String| line.contains("/.boathook-lock");
            let (index, rest) = split_listing(&host);
            let (lock, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_lock);
            assert_eq!(rest, complete, "{fault}: it says that all is done");
            let lacks_index = ran.stdout.contains("no class index was written");
            let said = lacks_index || index.len() == 1;
            assert!(said, "{fault}: {index:?} {}", ran.stdout);
            let said = ran.stdout.contains("cannot remove") && ran.stdout.contains("next run");
            assert!(lock.is_empty() || said, "{fault}: {lock:?} {}", ran.stdout);
        } else {
            let said = fault.silences() || ran.stderr.contains("boathook-init: ");
            assert!(said, "{fault}: {}{}", ran.stdout, ran.stderr);
        }
        install(&[], &host, release.path()).success().unwrap();
        let (index, rest) = split_listing(&host);
        assert_eq!(rest, complete, "{fault}: the next installation");
        assert_eq!(index.len(), 1, "{fault}: the next installation: {index:?}");
    }
}

/// Returns the lines of the class index, which has the times of other files, and all other lines of
/// the listing of a host.
fn split_listing(host: &TempDir) -> (Vec<String>, Vec<String>) {
    let lines = listing(host.path()).into_iter();
    lines.partition(|line| line.contains("/.classes.json"))
}

/// A release with small programs.
fn release() -> TempDir {
    let release = harness::scratch::directory("release").unwrap();
    let program = compile::program("empty-hook.c", Libc::Glibc, &["-static"]).unwrap();
    let (programs, classes) = (release.path().join("bin"), release.path().join("classes.d"));
    fs::create_dir(&programs).unwrap();
    fs::create_dir(&classes).unwrap();
    for name in [
        "boathook",
        "boathook-hook",
        "boathook-runtime",
        "boathook-init",
    ] {
        binaries::copy(&program, &programs.join(name)).unwrap();
    }
    let class = binaries::source_tree().join("device-class/classes/dummy-npu.toml");
    class_files::copy(&class, &classes.join("dummy-npu.toml")).unwrap();
    release
}

/// A host with containerd.
fn host() -> TempDir {
    let host = harness::scratch::directory("host").unwrap();
    fs::create_dir_all(host.path().join("etc/containerd")).unwrap();
    fs::write(
        host.path().join("etc/containerd/config.toml"),
        "version = 2\n",
    )
    .unwrap();
    host
}

fn install(strace: &[String], host: &TempDir, release: &Path) -> Captured {
    let program = binaries::program("boathook-init").unwrap();
    let mut command = match strace {
        [] => Command::new(program),
        _ => {
            let mut command = Command::new(STRACE);
            command.args(strace).arg(program);
            command
        }
    };
    command
        .arg("--host-root")
        .arg(host.path())
        .args(["install", "--engine", "containerd", "--source"])
        .arg(release);
    Captured::run(&mut command).unwrap()
}

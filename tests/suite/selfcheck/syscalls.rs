//! System calls are really hidden.

use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::privilege;

fn without_syscalls(arguments: &[&str]) -> Captured {
    let program = binaries::program("without-syscalls").unwrap();
    Captured::run(Command::new(program).args(arguments)).unwrap()
}

/// A program that mounts fails with the error that was requested, and works
/// where another call is hidden.
#[test]
fn only_the_named_calls_fail() {
    if let Some(reason) = privilege::missing_for_runc(CgroupView::V2) {
        return skip::report("only_the_named_calls_fail", &reason);
    }
    let mounts = binaries::program("cgroup2-view").unwrap();
    let mounts = mounts.to_str().unwrap();
    let cases = [
        ("EPERM", "mount", Some("EPERM")),
        ("ENOSYS", "openat2,mount", Some("ENOSYS")),
        ("ENOSYS", "openat2,move_mount", None),
    ];
    for (errno, calls, expected) in cases {
        let ran = without_syscalls(&[errno, calls, mounts, "true"]);
        assert_eq!(
            ran.status.success(),
            expected.is_none(),
            "{errno} {calls}: {}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains(expected.unwrap_or_default()),
            "{errno} {calls}: {}",
            ran.stderr
        );
    }
}

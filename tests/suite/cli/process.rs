//! The process that a careless or hostile runtime starts the hook in: closed
//! descriptors, limits, signals, no working directory. The result is the right
//! one or an error line, and never a panic or a silent end.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::{DemoHost, HostDirectory};

use super::{bundle, code, state, with_private_run};

/// Runs the hook for a bundle after these commands of a shell.
fn hook_after(prelude: &str, host: &HostDirectory, bundle: &Path) -> Captured {
    let script = format!("{prelude}\nexec \"$0\" --config \"$1\" prestart");
    let mut command = with_private_run();
    command
        .args(["/bin/bash", "-c", &script])
        .arg(binaries::program("boathook-hook").unwrap())
        .arg(host.config_file());
    Captured::run_with_input(&mut command, state(bundle).to_string().as_bytes()).unwrap()
}

#[test]
fn the_result_does_not_depend_on_the_process() {
    let host = HostDirectory::new().unwrap();
    let nothing = bundle(&[("PATH", "/bin")]);
    let unknown = bundle(&[(DemoHost::VARIABLE, "no-such-device")]);
    for prelude in [
        ":",
        "exec 1>&-",
        "exec 1>&- 3<&- 4<&-",
        "exec 7</dev/null 8</dev/null",
        "umask 0777",
        "umask 0",
        "ulimit -n 16",
        "ulimit -u 1",
        "ulimit -c 0 -l 0",
        "trap '' TERM INT HUP PIPE ALRM XFSZ CHLD",
        "d=$(mktemp -d); cd \"$d\"; rmdir \"$d\"",
        "for i in $(seq 400); do export \"V$i=$(printf %04000d 0)\"; done",
        "export RUST_BACKTRACE=full RUST_LOG=trace LD_LIBRARY_PATH=/tmp TZ=../../x",
    ] {
        let ran = hook_after(prelude, &host, nothing.path());
        assert_eq!(ran.status.code(), Some(code::SUCCESS), "{prelude}: {ran:?}");
        assert_eq!(ran.stderr, "", "{prelude}");
        let ran = hook_after(prelude, &host, unknown.path());
        assert_eq!(ran.status.code(), Some(code::REQUEST), "{prelude}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{prelude}: {}", ran.stderr);
    }
}

#[test]
fn what_cannot_be_done_in_such_a_process_ends_with_an_error() {
    let host = HostDirectory::new().unwrap();
    let unknown = bundle(&[(DemoHost::VARIABLE, "no-such-device")]);
    for (prelude, exit) in [
        // Without stdin there is no state.
        ("exec 0<&-", Some(code::SPEC)),
        ("exec 0</", Some(code::SPEC)),
        // Without stderr the exit code is what is left.
        ("exec 2>&-", Some(code::REQUEST)),
        ("exec 0<&- 1>&- 2>&-", Some(code::SPEC)),
        ("exec 2>/dev/full", Some(code::REQUEST)),
        // Stderr is a file here.
        ("ulimit -f 0", Some(code::REQUEST)),
        // Nothing can be opened, or little.
        ("ulimit -n 3", None),
        ("ulimit -n 4", None),
        ("ulimit -n 5", None),
    ] {
        let ran = hook_after(prelude, &host, unknown.path());
        let found = ran.status.code();
        assert!(found.is_some_and(|found| found != 0), "{prelude}: {ran:?}");
        if exit.is_some() {
            assert_eq!(found, exit, "{prelude}: {ran:?}");
        }
        assert!(!ran.stderr.contains("panicked"), "{prelude}: {ran:?}");
    }
}

/// The allocator's failure ends the process by SIGABRT with a line of its own;
/// with less memory than the program itself takes it is not even started.
#[test]
fn little_memory_never_gives_a_wrong_result() {
    let host = HostDirectory::new().unwrap();
    let unknown = bundle(&[(DemoHost::VARIABLE, "no-such-device")]);
    for kilobytes in [4_000, 6_000, 8_000, 12_000, 100_000] {
        let ran = hook_after(&format!("ulimit -v {kilobytes}"), &host, unknown.path());
        assert!(!ran.status.success(), "{kilobytes}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{kilobytes}: {ran:?}");
        let explained = !ran.stderr.is_empty() || ran.status.signal().is_some();
        assert!(explained, "{kilobytes}: {ran:?}");
    }
}

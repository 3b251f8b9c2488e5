//! What the hook still has when it begins to read: no descriptor that it was
//! handed beyond stdio, and no capability that its steps do not need.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use harness::binaries;
use harness::demo_host::HostDirectory;
use harness::patience::wait_until;

/// The numbers of the capabilities that the hook may keep (capability.h):
/// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, SETGID, SETUID, NET_ADMIN,
/// SYS_CHROOT, SYS_PTRACE, SYS_ADMIN, SYS_RESOURCE, MKNOD.
const KEPT: [u32; 12] = [0, 1, 2, 3, 6, 7, 12, 18, 19, 21, 24, 27];

#[test]
fn the_hook_gives_up_what_it_does_not_need_before_it_reads() {
    let host = HostDirectory::new().unwrap();
    // A shell hands descriptors on, as a careless runtime does.
    let mut hook = Command::new("/bin/sh")
        .args([
            "-c",
            "exec 7</dev/null 9</; exec \"$0\" --config \"$1\" prestart",
        ])
        .arg(binaries::program("boathook-hook").unwrap())
        .arg(host.config_file())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_it_reads(&hook);
    assert!(descriptors_beyond_stdio(&hook).is_empty());
    let allowed = KEPT.iter().fold(0, |bits, number| bits | 1_u64 << number);
    for set in ["CapInh", "CapPrm", "CapEff"] {
        let held = capabilities(&hook, set);
        assert_eq!(held & !allowed, 0, "{set} {held:x}");
    }
    // The other way round: it has not given up what it does need.
    let mine = capabilities_of("self", "CapEff");
    assert_eq!(capabilities(&hook, "CapEff"), mine & allowed);
    hook.stdin.take().unwrap().write_all(b"no state").unwrap();
    let output = hook.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(super::code::SPEC));
}

/// Waits until the program sleeps in its read of stdin.
fn wait_until_it_reads(hook: &Child) {
    let program = fs::canonicalize(binaries::program("boathook-hook").unwrap()).unwrap();
    let reads = wait_until(|| {
        let started = fs::read_link(format!("/proc/{}/exe", hook.id())).is_ok_and(|e| e == program);
        let status = fs::read_to_string(format!("/proc/{}/status", hook.id())).unwrap();
        started && status.contains("State:\tS")
    });
    assert!(reads, "the hook does not read");
}

/// Returns the files on which the descriptors beyond stdio are open.
fn descriptors_beyond_stdio(hook: &Child) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{}/fd", hook.id())).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let beyond = paths.filter(|path| !["0", "1", "2"].iter().any(|name| path.ends_with(name)));
    beyond.map(|path| fs::read_link(path).unwrap()).collect()
}

fn capabilities(hook: &Child, set: &str) -> u64 {
    capabilities_of(&hook.id().to_string(), set)
}

fn capabilities_of(process: &str, set: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(set)).unwrap();
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

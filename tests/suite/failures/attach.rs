//! `boathook attach` of a container that runs: a call that fails leaves nothing of the device.

use std::path::Path;

use harness::binaries;
use harness::bundle::Bundle;
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::probe::Access;
use harness::rootfs::Rootfs;

use super::trace::{self, STRACE};
use crate::lab::{Lab, on_each_cgroup_version};
use crate::live::follow::may_open;
use crate::live::{done, plain, reads, records};

on_each_cgroup_version!(every_call_fails_once);

fn every_call_fails_once(lab: &Lab) {
    if let Some(reason) = trace::missing() {
        return skip::report("failing system calls of attach", &reason);
    }
    let host = DemoHost::new().unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let recorded = host.path().join("calls");
    attach(lab, &host, &trace::recording(&recorded), &bundle)
        .success()
        .unwrap();
    let has_it = || reads(&running, 3) == Some(Access::Granted);
    let has_nothing = |case: &str| {
        assert_eq!(reads(&running, 3), None, "{case}: the node is left");
        assert!(!may_open(&running, &host, 3), "{case}: the rule is left");
        assert!(records(&host).is_empty(), "{case}");
    };
    assert!(has_it());
    done(lab, &host, &["detach", bundle.id()]);
    has_nothing("without a fault");
    let recorded_processes = host.path().join("calls-of-process");
    let strace = trace::recording_each_process(&recorded_processes);
    attach(lab, &host, &strace, &bundle).success().unwrap();
    done(lab, &host, &["detach", bundle.id()]);
    // Most calls are made while nothing is changed: those after the record is written count.
    let planning = trace::faults(&recorded, 8);
    let changing = trace::faults_between(&recorded, "/.boathook-", "exit_group", 32);
    // The second time the same call of each child process fails, too.
    let own = planning
        .chain(changing)
        .map(|fault| (fault, &[false, true][..]));
    let in_children =
        trace::child_faults(&recorded_processes, 24).map(|fault| (fault, &[true][..]));
    for (fault, in_which) in own.chain(in_children) {
        for &children in in_which {
            let case = format!("{fault}, children: {children}");
            let mut strace = fault.arguments().to_vec();
            if children {
                strace.insert(0, "-f".to_owned());
            }
            let ran = attach(lab, &host, &strace, &bundle);
            assert!(!ran.stderr.contains("panicked"), "{case}: {}", ran.stderr);
            // To a class with other nodes, a node that is not there is no fault.
            let is_absent = case.contains("\"dummy-npu3\"") && case.contains("ENOENT");
            if ran.status.success() {
                assert!(has_it() || is_absent, "{case}: {ran:?}");
            } else if !fault.kills() {
                assert_eq!(
                    reads(&running, 3),
                    None,
                    "{case}: the node is left: {ran:?}"
                );
                assert!(
                    !may_open(&running, &host, 3),
                    "{case}: the rule is left: {ran:?}"
                );
                // A call that fails in every child process also fails in the one that undoes the
                // change: the record stays for `detach`, and the command says so.
                let says_so =
                    children && ran.stderr.contains("`boathook detach` will take it away");
                assert!(says_so || records(&host).is_empty(), "{case}: {ran:?}");
            }
            done(lab, &host, &["detach", bundle.id()]);
            has_nothing(&case);
        }
    }
}

fn attach(lab: &Lab, host: &DemoHost, strace: &[String], bundle: &Bundle) -> Captured {
    let mut command = lab.runc.view().command(Path::new(STRACE)).unwrap();
    command
        .args(strace)
        .arg(binaries::program("boathook").unwrap())
        .arg("--config")
        .arg(host.config_file())
        .args(["attach", bundle.id(), "dummy-npu=3", "--root"])
        .arg(lab.runc.state_directory());
    Captured::run(&mut command).unwrap()
}

//! Tests with files and programs whose reads never return, as with a driver that hangs.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use harness::hanging::{self, HangingFileSystem};
use injection_plan::program_output;

use crate::node::{Node, wait_until};
use crate::pages::{self, get};

const CLASS: &str = r#"
version = 1
resource = "hanging.example/card"
request = { env = "HANGING_VISIBLE_DEVICES" }
discover = [{ path = "/dev/card{index:number}", attributes = [{ name = "model", file = "/sys/card{index}/model" }] }]
device = { id = "card-{index}" }
"#;

/// Returns how long the current scan has been running, in seconds.
fn running(address: &str) -> f64 {
    let page = get(address, "/metrics");
    let mut values = page
        .lines()
        .filter_map(|line| line.strip_prefix("boathook_scan_running_seconds "));
    values.next().unwrap().parse().unwrap()
}

/// The first scan hangs, and further events occur meanwhile. Only one thread waits, and the
/// pages report the hanging scan.
#[test]
fn one_scan_hangs_and_the_pages_answer() {
    if let Some(reason) = hanging::missing() {
        return skip::report(module_path!(), &reason);
    }
    let mut node = Node::new(&[("cards", CLASS)]).with_arguments(&pages::SERVE);
    node.write("host/dev/card0", "");
    node.write("host/sys/card0/model", "");
    let hanging = HangingFileSystem::mount_over(&node.path("host/sys/card0")).unwrap();
    node.start_plugin();
    let address = pages::address(&node);
    wait_until("the scan hangs", || running(&address) > 0.5);
    let threads = || {
        let list = fs::read_dir(format!("/proc/{}/task", node.pid()));
        list.unwrap().count()
    };
    let before = threads();
    for card in 1..20 {
        node.write(&format!("host/dev/card{card}"), "");
        assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
        sleep(Duration::from_millis(50));
    }
    let ready = get(&address, "/readyz");
    assert!(
        ready.contains("the first device scan has not ended"),
        "{ready}"
    );
    assert!(running(&address) > 1.0);
    assert!(
        threads() <= before,
        "{} threads, {before} before",
        threads()
    );
    drop(hanging);
    wait_until("the scans go on", || running(&address) < 0.5);
}

/// A program that hangs is not started a second time when it is due again, because not even
/// SIGKILL ends the first process.
#[test]
fn a_program_that_hangs_is_started_once() {
    if let Some(reason) = hanging::missing() {
        return skip::report(module_path!(), &reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let hanging = HangingFileSystem::taking(directory.path()).unwrap();
    let name = directory.path().join("name");
    let run = |program: &str| {
        let mut command = Command::new(program);
        command.arg(&name);
        program_output::run_program(command, Duration::from_millis(100), 100).unwrap()
    };
    let running = || {
        let wanted = name.to_str().unwrap();
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let lines = pids.filter_map(|it| fs::read_to_string(it.path().join("cmdline")).ok());
        lines.filter(|line| line.contains(wanted)).count()
    };
    for _ in 0..3 {
        assert!(run("/bin/cat").is_none());
        assert_eq!(running(), 1);
    }
    // Another program is started.
    assert!(run("/bin/echo").is_some());
    drop(hanging);
    wait_until("it ends", || running() == 0);
    assert!(run("/bin/cat").is_some_and(|(status, _)| !status.success()));
}

//! Tests with clocks that jump or have an offset, and with a process that was stopped for a
//! while.

use std::collections::BTreeSet;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::kubelet::Allocation;
use nix::sys::signal::Signal;

use crate::faults::registrations;
use crate::node::{CARDS, MARK_1, Node, PATIENCE, wait_list};

#[test]
fn a_wall_clock_that_jumps_by_years_decides_nothing() {
    let jumping = binaries::program("jumping-clock").unwrap();
    let jumping = jumping.to_str().unwrap();
    if let Err(error) = Captured::run(Command::new(jumping).arg("true")).and_then(Captured::success)
    {
        return skip::report("a jumping clock", &format!("{error:#}"));
    }
    let mut node = Node::new(&[("cards", CARDS)]).within(&[jumping]);
    node.add_card(0, "mark-1", -1);
    node.add_card(1, "mark-1", -1);
    let mut kubelet = node.kubelet();
    node.start_plugin();
    assert_eq!(kubelet.wait_devices(PATIENCE, MARK_1).unwrap().len(), 2);
    for _ in 0..20 {
        kubelet.resume().unwrap();
        assert_eq!(kubelet.wait_devices(PATIENCE, MARK_1).unwrap().len(), 2);
    }
    node.remove("host/dev/card1");
    let devices = || kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    assert_eq!(devices()[1].health, "Unhealthy");
    assert_eq!(devices().len(), 1, "forgotten after its time");
    kubelet.allocate(Allocation::new(MARK_1, 1)).unwrap();
    let (status, _) = node.end_plugin(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0), "{status}");

    // The log has the time of each message. It has two different years, so the clock did jump.
    let log = node.log();
    let years: BTreeSet<&str> = log.lines().filter_map(|line| line.get(..4)).collect();
    assert_eq!(years.len(), 2, "{log}");
    assert_eq!(registrations(&kubelet), 21, "{log}");
}

/// Ten years, in seconds.
const OFFSET: f64 = 315_360_000.0;

/// A command that starts a program in a time namespace (time_namespaces(7)), where the machine
/// seems to have been up for ten years more.
const LONG_UP: &str =
    "unshare --user --map-root-user --time --monotonic 315360000 --boottime 315360000";

/// Checks that a program that is started like the plugin sees the offset. Before Linux 6.3,
/// only a child of the process that calls `unshare` is in the namespace.
fn is_long_up() -> Result<(), String> {
    let mut words = LONG_UP.split(' ').chain(["cat", "/proc/uptime"]);
    let mut command = Command::new(words.next().unwrap_or_default());
    let read = command.args(words);
    let said = Captured::run(read).and_then(Captured::success);
    let said = said.map_err(|error| format!("{error:#}"))?.stdout;
    let uptime = said.split_whitespace().next().map(str::parse::<f64>);
    match uptime {
        Some(Ok(seconds)) if seconds > OFFSET => Ok(()),
        _ => Err(format!("no time namespace, its uptime is {said:?}")),
    }
}

#[test]
fn timers_count_from_any_uptime() {
    if let Err(reason) = is_long_up() {
        return skip::report("a long uptime", &reason);
    }
    let mut node = Node::new(&[("cards", CARDS)]).within(&LONG_UP.split(' ').collect::<Vec<_>>());
    node.add_card(0, "mark-1", -1);
    node.add_card(1, "mark-1", -1);
    let mut kubelet = node.kubelet();
    node.start_plugin();
    let devices = || kubelet.wait_devices(PATIENCE, MARK_1).unwrap();
    assert_eq!(devices().len(), 2);
    // Rescans notice that the card is missing: it is unhealthy at first, and is removed from
    // the list after the grace period.
    node.remove("host/dev/card1");
    assert_eq!(devices()[1].health, "Unhealthy");
    assert_eq!(devices().len(), 1);
    kubelet.resume().unwrap();
    assert_eq!(kubelet.wait_devices(PATIENCE, MARK_1).unwrap().len(), 1);
}

#[test]
fn what_happened_while_the_process_stood_still_is_caught_up_with() {
    let mut node = Node::new(&[("cards", CARDS)]).without_rescans();
    node.add_card(0, "mark-1", -1);
    node.add_card(1, "mark-1", -1);
    let mut kubelet = node.serve(MARK_1);

    node.signal(Signal::SIGSTOP);
    for _ in 0..3 {
        kubelet.resume().unwrap();
    }
    node.remove("host/dev/card1");
    node.add_card(2, "mark-1", -1);
    node.signal(Signal::SIGCONT);
    wait_list(&kubelet, |devices| {
        let ids = devices.iter().map(|device| device.id.as_str());
        ids.eq(["card-0", "card-2"])
    });
    assert_eq!(node.sockets(), ["boathook-cards.example_mark-1.sock"]);
    let given = kubelet.allocate(Allocation::of_ids(MARK_1, &["card-2"]));
    assert_eq!(given.unwrap().ids, ["card-2"]);
}

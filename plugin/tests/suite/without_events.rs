//! Tests without inotify: the kernel refuses an inotify instance or a watch, as on hosts where
//! other programs have used up the limit.

use std::process::Command;
use std::time::Duration;

use harness::captured::Captured;
use harness::kubelet::Event;
use nix::sys::signal::Signal;

use crate::node::{CARDS, MARK_1, Node, PATIENCE};

#[test]
fn without_inotify_the_kubelet_and_the_devices_are_looked_for() {
    for limit in [
        "0 >/proc/sys/user/max_inotify_instances",
        "0 >/proc/sys/user/max_inotify_watches",
    ] {
        // The limit is set in a separate user namespace (namespaces(7)). The limit of the
        // machine does not change.
        let set = format!("echo {limit} && exec \"$0\" \"$@\"");
        let within = ["unshare", "--user", "--map-root-user", "sh", "-c", &set];
        let mut try_it = Command::new(within[0]);
        let tried = Captured::run(try_it.args(&within[1..]).arg("true"));
        if let Err(error) = tried.and_then(Captured::success) {
            return skip::report("without inotify", &format!("{error:#}"));
        }
        let mut node = Node::new(&[("cards", CARDS)]).within(&within);
        node.add_card(0, "mark-1", -1);
        let mut kubelet = node.serve(MARK_1);
        node.wait_log("/plugins_registry, polling instead: ");
        node.wait_log("/classes, polling instead: ");

        node.add_card(1, "mark-1", -1);
        assert_eq!(kubelet.wait_devices(PATIENCE, MARK_1).unwrap().len(), 2);
        kubelet.resume().unwrap();
        // Without events, the plugin looks for the kubelet's socket every 10 s.
        let registered = |event: &Event| matches!(event, Event::Registered { .. });
        kubelet.wait(Duration::from_secs(30), registered).unwrap();
        let (status, _) = node.end_plugin(Signal::SIGTERM);
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

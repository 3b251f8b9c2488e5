//! What a process holds.

use std::fs;
use std::time::Duration;

use crate::node::{Node, wait_until};
use crate::pages;

/// Longer than a connection takes to end that nobody uses any more.
const MOMENT: Duration = Duration::from_millis(100);

/// What must not grow with what came and went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) descriptors: usize,
    /// Threads of the kernel's.
    pub(crate) threads: usize,
    /// Tasks of the asynchronous runtime.
    pub(crate) tasks: usize,
}

impl Footprint {
    /// That of the plugin when nothing is going on.
    pub(crate) fn at_rest(node: &Node, address: &str) -> Self {
        let mut last = Footprint::measure(node, address);
        wait_until("the plugin comes to rest", || {
            std::thread::sleep(MOMENT);
            let before = std::mem::replace(&mut last, Footprint::measure(node, address));
            before == last
        });
        last
    }

    /// Measures the plugin of a node, which serves its metrics at `address`.
    fn measure(node: &Node, address: &str) -> Self {
        let list = |name: &str| fs::read_dir(format!("/proc/{}/{name}", node.pid())).unwrap();
        Footprint {
            tasks: pages::metric(address, "boathook_tasks"),
            descriptors: list("fd").count(),
            threads: list("task").count(),
        }
    }

    /// Waits until the plugin holds at most this.
    pub(crate) fn wait_until_again(self, node: &Node, address: &str) {
        let mut last = self;
        wait_until("no more held than before", || {
            let now = Footprint::measure(node, address);
            if now != last {
                println!("held: {now:?}, before: {self:?}");
                last = now;
            }
            now.descriptors <= self.descriptors
                && now.threads <= self.threads.max(THREADS)
                && now.tasks <= self.tasks
        });
    }
}

/// The main one, one that scans, and one that makes the page of metrics, if both were busy
/// at once.
const THREADS: usize = 3;

/// KiB of a process in memory (`VmRSS` of proc_pid_status(5)).
pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

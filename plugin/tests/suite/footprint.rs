//! Measures the resources that a process holds: descriptors, threads, tasks and memory.

use std::fs;
use std::time::Duration;

use crate::node::{Node, wait_until};
use crate::pages;

/// The time between two measurements. A connection that both sides have closed ends within
/// this time.
const MOMENT: Duration = Duration::from_millis(100);

/// Numbers that must not grow when clients, devices or kubelets come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) descriptors: usize,
    /// Threads of the process, as the kernel counts them.
    pub(crate) threads: usize,
    /// Tasks of the asynchronous runtime.
    pub(crate) tasks: usize,
}

impl Footprint {
    /// Measures the plugin until two measurements in a row are equal, and returns the last.
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

    /// Waits until the plugin holds at most as much as `self`. Up to [`THREADS`] threads are
    /// always allowed.
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

/// The threads that the plugin may have: the main thread, and three that work at the same time.
/// One scans, one makes the page of metrics, and one reads the kubelet's checkpoint after an
/// allocation. The runtime ends a thread that had no work for 10 s. Each measurement gives work to
/// one of the three, so that they stay as long as the test measures.
const THREADS: usize = 4;

/// Returns the resident memory of a process in KiB (`VmRSS` of proc_pid_status(5)).
pub(crate) fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

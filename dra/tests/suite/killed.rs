//! Tests that kill the driver at each system call that changes a file while a claim is
//! prepared or unprepared, and at each write of slices.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::node::{NPUS, Node, wait};
use crate::parts;

const STRACE: &str = "/usr/bin/strace";

/// The system calls, the largest number of times each is made, and how many more times if a
/// part is made.
const CALLS: [(&str, usize, usize); 6] = [
    ("flock", 2, 2),
    ("openat", 6, 2),
    ("fchmod", 2, 1),
    ("fsync", 4, 2),
    ("renameat", 2, 1),
    ("unlink", 3, 0),
];

#[tokio::test]
async fn a_killed_driver_leaves_what_the_next_one_makes_whole() {
    if !Path::new(STRACE).is_file() {
        return skip::report(module_path!(), "needs strace");
    }
    killed_at_each_call(async || Some(Node::new(NPUS, 1).await), "npu-0", |_| 0).await;
}

#[tokio::test]
async fn a_part_of_a_killed_driver_is_recognised_or_made_anew() {
    if !Path::new(STRACE).is_file() {
        return skip::report(module_path!(), "needs strace");
    }
    killed_at_each_call(async || parts::node(1).await, "npu-0-half-0", |more| more).await;
}

async fn killed_at_each_call(
    new: impl AsyncFn() -> Option<Node>,
    device: &str,
    further: fn(usize) -> usize,
) {
    let claim = ["n", "a", "u-1"];
    let mut kills = 0;
    for (call, most, more) in CALLS {
        for number in 1..=most + further(more) {
            let Some(mut node) = new().await else { return };
            node.allocate("a", "u-1", &[("r", device)]);
            let driver = node.start().await;
            node.wait_devices("a device", |devices| !devices.is_empty())
                .await;
            let trace = format!("trace={call}");
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let above = node.path("kubelet/plugins/boathook.dev");
            let claims = above.join("claims");
            let record = claims.join("u-1.json");
            let cdi = node.path("cdi");
            let specification = cdi.join("boathook.dev-claim-u-1.json");
            let locks = ["serialize.lock", "parts-npu.lock"].map(|lock| above.join(lock));
            let process = node.pid().to_string();
            let mut tracer = Command::new(STRACE);
            tracer.args(["-qq", "-f", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
            // A new file has a random name, so calls on new files cannot be selected by path.
            // The other calls are made on new files only.
            if ["flock", "openat", "unlink"].contains(&call) {
                let paths = [&claims, &cdi, &record, &specification];
                for path in paths.into_iter().chain(&locks) {
                    tracer.arg("-P").arg(path);
                }
            }
            let mut tracer = tracer.args(["-p", &process]).spawn().unwrap();
            let status = format!("/proc/{process}/status");
            let is_traced = || {
                !fs::read_to_string(&status)
                    .unwrap()
                    .contains("TracerPid:\t0\n")
            };
            wait("it is traced", is_traced).await;
            let was_killed = tokio::time::timeout(Duration::from_secs(20), async {
                driver.prepare_one(claim).await.is_err() || driver.unprepare(claim).await.is_err()
            });
            kills += usize::from(was_killed.await.unwrap_or(true));
            tracer.kill().unwrap();
            tracer.wait().unwrap();
            let driver = node.start().await;
            let devices = driver.prepare_one(claim).await.unwrap();
            assert_eq!(devices[0].cdi_device_ids.len(), 1);
            assert_eq!(node.specified("u-1").len(), 1, "{call} {number}");
            driver.unprepare(claim).await.unwrap();
            assert!(
                !record.exists() && !specification.exists(),
                "{call} {number}"
            );
        }
    }
    assert!(kills >= CALLS.len(), "only {kills} were killed");
}

/// The scheduler uses only slices of the newest generation, and only when all slices of that
/// generation exist.
#[tokio::test]
async fn a_driver_that_is_killed_while_it_publishes_leaves_what_the_next_one_completes() {
    let device = |number: usize| format!("host/sys/npu/npu{number}");
    // The devices grow from one slice to three, or shrink from three slices to one.
    for writes in 1..=3 {
        for (before, after) in [(1, 130), (130, 1)] {
            let mut node = Node::new(NPUS, before).await;
            node.start().await;
            node.wait_count(before).await;
            let process = Pid::from_raw(node.pid().cast_signed());
            node.server
                .when_written(writes, move || kill(process, Signal::SIGKILL).unwrap());
            for number in before..after {
                node.device(number, "ok");
            }
            for number in after..before {
                fs::remove_dir_all(node.path(&device(number))).unwrap();
            }
            node.wait_killed().await;
            node.start().await;
            let is_whole = || {
                let slices = node.slices();
                let pools: Vec<_> = slices.iter().map(|one| &one["spec"]["pool"]).collect();
                let count = &pools[0]["resourceSliceCount"];
                *count == slices.len() && pools.iter().all(|pool| *pool == pools[0])
            };
            let case = format!("{writes} writes from {before} to {after}");
            wait(&case, || is_whole() && node.devices().len() == after).await;
        }
    }
}

/// The program that makes parts kills the driver before, during or after its work. Then the
/// claim is prepared again, or it ends.
#[tokio::test]
async fn a_driver_that_is_killed_while_its_program_runs_leaves_no_half_part() {
    for mode in [
        "kill-before",
        "kill-half",
        "kill-after",
        "remove-kill-before",
        "remove-kill-after",
    ] {
        for ends in [false, true] {
            let Some(mut node) = parts::node(1).await else {
                return;
            };
            let driver = node.start().await;
            // A part that overlaps the requested one must be removed first.
            node.allocate("b", "u-b", &[("r", "npu-0-quarter-1")]);
            driver.prepare_one(["n", "b", "u-b"]).await.unwrap();
            driver.unprepare(["n", "b", "u-b"]).await.unwrap();
            let claim = ["n", "a", "u-a"];
            node.allocate("a", "u-a", &[("r", "npu-0-half-0")]);
            parts::mode(&node, mode);
            assert!(driver.prepare_one(claim).await.is_err(), "{mode}");
            node.wait_killed().await;
            parts::mode(&node, "well");
            let driver = node.start().await;
            if !ends {
                driver.prepare_one(claim).await.unwrap();
                assert_eq!(parts::list_made_parts(&node, 0), ["part10"], "{mode}");
            }
            driver.unprepare(claim).await.unwrap();
            let left = parts::list_made_parts(&node, 0);
            assert!(
                left.iter().all(|name| name.starts_with("part")),
                "{mode}: {left:?}"
            );
            // A new claim for the whole device succeeds, so no part that is left blocks it.
            node.allocate("c", "u-c", &[("r", "npu-0")]);
            driver.prepare_one(["n", "c", "u-c"]).await.unwrap();
            assert!(parts::list_made_parts(&node, 0).is_empty(), "{mode}");
        }
    }
}

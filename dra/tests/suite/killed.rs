//! Killed at each system call that changes a file while a claim is prepared or unprepared.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::node::{NPUS, Node, wait};

const STRACE: &str = "/usr/bin/strace";

/// The calls, and how often each is made at most.
const CALLS: [(&str, usize); 5] = [
    ("flock", 2),
    ("fsync", 2),
    ("write", 4),
    ("rename", 3),
    ("unlink", 3),
];

#[tokio::test]
async fn a_killed_driver_leaves_what_the_next_one_makes_whole() {
    if !Path::new(STRACE).is_file() {
        return skip::report(module_path!(), "needs strace");
    }
    let claim = ["n", "a", "u-1"];
    let mut kills = 0;
    for (call, most) in CALLS {
        for number in 1..=most {
            let mut node = Node::new(NPUS, 1).await;
            node.allocate("a", "u-1", &[("r", "npu-0")]);
            let driver = node.start().await;
            node.wait_devices("a device", |devices| devices.len() == 1)
                .await;
            let trace = format!("trace={call}");
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let claims = node.path("kubelet/plugins/boathook.dev/claims");
            let record = claims.join("u-1.json");
            let temporary = claims.join("u-1.tmp");
            let cdi = node.path("cdi");
            let specification = cdi.join("boathook.dev-claim-u-1.json");
            let half = cdi.join("boathook.dev-claim-u-1.tmp");
            let lock = node.path("kubelet/plugins/boathook.dev/serialize.lock");
            let process = node.process.as_ref().unwrap().id().to_string();
            let mut tracer = Command::new(STRACE);
            tracer.args(["-qq", "-f", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
            for path in [&record, &temporary, &specification, &half, &lock] {
                tracer.arg("-P").arg(path);
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

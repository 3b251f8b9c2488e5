//! Tests that nothing waits for a time: rounds and messages are counted, since a busy machine makes
//! each of them longer.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use crate::node::{NPUS, Node, wait};

/// The time that the driver waits for the kubelet's list of pods, before it scans.
const KUBELET_LIMIT: Duration = Duration::from_secs(2);

/// A device whose node is removed is unhealthy in the next message to the kubelet, which does not
/// wait for a rescan. One repeated message may come before it.
#[tokio::test]
async fn the_kubelet_is_told_of_an_unplugged_device_without_a_rescan() {
    let class = NPUS.replace("/sys/npu/npu{index", "/dev/npu{index");
    let class = class.replace("health = [{ file = 'state', equals = 'ok' }]\n", "");
    let class = class.replace(
        "name = 'memory', file = 'memory'",
        "name = 'memory', value = '64'",
    );
    let mut node = Node::new(&class, 0).await;
    node.rescan = "3600";
    for number in [0, 1] {
        node.write(&format!("host/dev/npu{number}"), "");
    }
    let driver = node.start().await;
    node.wait_count(2).await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    driver.prepare_one(["n", "a", "u-1"]).await.unwrap();
    let mut messages = driver.watch_health().await.unwrap();
    let healthy = messages.next_devices().await.unwrap();
    assert!(
        healthy.iter().all(|device| device.health == 1),
        "{healthy:?}"
    );

    fs::remove_file(node.path("host/dev/npu0")).unwrap();
    let mut unhealthy = Vec::new();
    for _ in 0..2 {
        let devices = messages.next_devices().await.unwrap();
        unhealthy.extend(devices.into_iter().filter(|device| device.health == 2));
        if !unhealthy.is_empty() {
            break;
        }
    }
    assert_eq!(unhealthy.len(), 1, "{unhealthy:?}");
    let reason = "NPU.0 is no longer among the devices of the host";
    assert_eq!(unhealthy[0].message, reason);
}

/// A scan may take long. The kubelet looks for new drivers once a second, and tries a pod that
/// needs one again after a minute.
#[tokio::test]
async fn the_driver_registers_before_its_first_scan_has_ended() {
    let mut node = Node::new(NPUS, 2).await;
    // The kubelet does not answer the question that comes before the scan.
    let directory = node.path("kubelet/pod-resources");
    fs::create_dir(&directory).unwrap();
    let _silent = UnixListener::bind(directory.join("kubelet.sock")).unwrap();
    node.by_plugin("dummy.com/npu", &["NPU.9"]);
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let driver = node.start().await;
        fastest = fastest.min(start.elapsed());
        // The call waits for the scan.
        driver.prepare_one(["n", "a", "u-1"]).await.unwrap();
        wait("it is published", || node.devices().len() == 2).await;
        if fastest < KUBELET_LIMIT {
            return;
        }
    }
    panic!("the fastest registration took {fastest:?}");
}

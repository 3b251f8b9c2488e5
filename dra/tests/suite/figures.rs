//! Measurements of the driver's time and memory for `make bench-cluster`, with the limits that
//! a release must meet.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::discover::{self, FoundClass, FoundEdits, Health};
use device_class::host::RealHost;
use dra::ClassDevices;
use dra::slice::{Pool, SliceAction, SliceFeatures, plan_actions, plan_pools};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;

use crate::node::{NPUS, Node};

const DEVICES: usize = 64;
const ROUNDS: usize = 5;
const NODES: usize = 5000;

/// The limits that a release must meet.
const MAX_P99: Duration = Duration::from_millis(5);
const MAX_START: Duration = Duration::from_secs(2);
const MAX_MEMORY: u64 = 20 << 10;

/// Returns a figure of /proc/PID/status in KiB.
fn memory(process: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let digits: String = line.unwrap().chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "of a release: make bench-cluster"]
async fn a_node_with_sixty_four_devices() {
    let mut node = Node::new(NPUS, DEVICES).await;
    let start = Instant::now();
    let driver = node.start().await;
    while node.devices().len() < DEVICES {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let published = start.elapsed();
    let claims = Api::<ResourceClaim>::namespaced(node.server.client(), "n");
    let (mut times, mut answers) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for number in 0..DEVICES {
            let (name, uid) = (format!("c-{number}"), format!("u-{round}-{number}"));
            node.allocate(&name, &uid, &[("r", &format!("npu-{number}"))]);
            let asked = Instant::now();
            claims.get(&name).await.unwrap();
            answers.push(asked.elapsed());
            let asked = Instant::now();
            driver.prepare_one(["n", &name, &uid]).await.unwrap();
            times.push(asked.elapsed());
        }
        for number in 0..DEVICES {
            let (name, uid) = (format!("c-{number}"), format!("u-{round}-{number}"));
            driver.unprepare(["n", &name, &uid]).await.unwrap();
        }
    }
    let p99 = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        (times[times.len() / 2], times[times.len() * 99 / 100])
    };
    let ((median, slow), (_, answer)) = (p99(&mut times), p99(&mut answers));
    let process = node.pid();
    let (resident, peak) = (memory(process, "VmRSS:"), memory(process, "VmHWM:"));
    println!("{DEVICES} devices published after {published:.0?}");
    println!(
        "prepare: median {median:.2?}, p99 {slow:.2?}; the API server's answer: p99 {answer:.2?}"
    );
    println!("memory: {resident} KiB, peak {peak} KiB");
    if cfg!(not(debug_assertions)) {
        assert!(
            slow.saturating_sub(answer) <= MAX_P99,
            "{slow:?}, {answer:?}"
        );
        assert!(published <= MAX_START, "{published:?}");
        assert!(peak <= MAX_MEMORY, "{peak} KiB");
    }
}

/// Applies the actions of a node to `slices`, as an API server does. Returns the number of
/// actions.
fn perform(node: usize, wanted: &[Pool], slices: &mut Vec<ResourceSlice>) -> usize {
    let actions = plan_actions(&format!("node-{node}"), wanted, slices);
    let count = actions.len();
    for action in actions {
        match action {
            SliceAction::Create(mut slice) => {
                let start = slice.metadata.generate_name.clone().unwrap();
                slice.metadata.name = Some(format!("{start}x"));
                slices.push(*slice);
            }

            SliceAction::Replace(new) => {
                let name = &new.metadata.name;
                let old = slices.iter_mut().find(|old| old.metadata.name == *name);
                *old.unwrap() = *new;
            }
            SliceAction::Delete(old) => slices.retain(|one| one.metadata.name != old.metadata.name),
        }
    }
    count
}

#[test]
fn five_thousand_nodes_write_what_has_changed() {
    let text = "version = 1\nresource = 'dummy.com/npu'\nrequest = { env = 'NPUS' }\n\
        discover = [{ count = 8 }]\n[device]\nid = 'NPU.{index}'\nindex = '{index}'\n";
    let name = "npu".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, Path::new("npu.toml"), text).unwrap();
    let host = RealHost::open(Path::new("/")).unwrap();
    let inventory = discover::find_devices(&class, &host);
    let edits = FoundEdits::default();
    let found = FoundClass { inventory, edits };
    let features = SliceFeatures {
        supports_taints: true,
        supports_shares: true,
        supports_parts: true,
        taint_effect: "NoSchedule".to_owned(),
    };
    let healthy = [ClassDevices::new(class, found, Path::new("/")).0];
    let mut faulty = healthy.clone();
    let reason = "it is hot".to_owned();
    faulty[0].found_class.inventory.devices[3].health = Health::Unhealthy { reason };
    let mut slices = vec![Vec::new(); NODES];
    let mut writes = |hot: Option<usize>| -> usize {
        let each = slices.iter_mut().enumerate().map(|(node, slices)| {
            let inventory = if hot == Some(node) { &faulty } else { &healthy };
            let wanted = plan_pools(&format!("node-{node}"), inventory, &features);
            perform(node, &wanted, slices)
        });
        each.sum()
    };
    let rounds = [None, None, Some(4711), Some(4711), None, None];
    assert_eq!(rounds.map(&mut writes), [NODES, 0, 1, 0, 1, 0]);
}

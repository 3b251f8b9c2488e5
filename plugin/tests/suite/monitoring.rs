//! A test of a class for monitoring: an agent has all GPUs of the node beside those that other pods
//! were allocated.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::kubelet::Allocation;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::Value;

use crate::node::{Node, PATIENCE};

const GPUS: &str = "version = 1\nresource = 'gpus.example/gpu'\nrequest = { env = 'GPUS' }\n\
    discover = [{ path = '/dev/gpu{index:number}' }]\n[device]\nid = 'gpu-{index}'\n\
    index = '{index}'\nnodes = ['/dev/gpu{index}']\n";

/// As the shipped classes for monitoring.
const MONITORING: &str = "extends = 'gpus'\nversion = 1\nresource = 'gpus.example/gpu-monitoring'\n\
    request = { env = 'GPU_MONITORING' }\ndevice = { health = [] }\n\
    sharing = { combine = true, replicas = 10 }\n";

const GPU: &str = "gpus.example/gpu";
const ALL: &str = "gpus.example/gpu-monitoring";

/// Returns the nodes that the engine gives to a container with this CDI name.
fn nodes(node: &Node, cdi_name: &str) -> Vec<String> {
    let (kind, device) = cdi_name.split_once('=').unwrap();
    let file = format!("cdi/boathook-{}.json", kind.replace('/', "-"));
    let text = fs::read_to_string(node.path(&file)).unwrap();
    let specification: Value = serde_json::from_str(&text).unwrap();
    let devices = specification["devices"].as_array().unwrap();
    let mut devices = devices.iter().filter(|one| one["name"] == device);
    let edits = &devices.next().unwrap()["containerEdits"];
    let nodes = edits["deviceNodes"].as_array().unwrap().iter();
    let mut paths: Vec<String> = nodes
        .map(|node| node["path"].as_str().unwrap().to_owned())
        .collect();
    paths.sort();
    paths
}

#[test]
fn an_agent_gets_all_devices_beside_the_pods_that_have_them() {
    if !nix::unistd::geteuid().is_root() {
        skip::report("a monitoring agent", "needs root");
        return;
    }
    let mut node = Node::new(&[("gpus", GPUS), ("gpus-monitoring", MONITORING)]);
    for number in 0..3 {
        let path = node.path(&format!("host/dev/gpu{number}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        mknod(&path, SFlag::S_IFCHR, Mode::empty(), makedev(1, 3)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let kubelet = node.serve(GPU);
    assert_eq!(kubelet.wait_devices(PATIENCE, ALL).unwrap().len(), 10);
    let cdi_name = |resource, ids: &[&str], pod: &str| {
        let allocation = Allocation {
            pod_uid: pod.to_owned(),
            ..match ids {
                [] => Allocation::new(resource, 1),
                ids => Allocation::of_ids(resource, ids),
            }
        };
        let allocated = kubelet.allocate(allocation).unwrap();
        let mut annotations = allocated.response.annotations.iter();
        let of_cdi = annotations.find(|(key, _)| key.starts_with("cdi.k8s.io/"));
        of_cdi.unwrap_or_else(|| panic!("{allocated:?}")).1.clone()
    };
    let all = ["/dev/gpu0", "/dev/gpu1", "/dev/gpu2"];
    let pod = cdi_name(GPU, &["gpu-1"], "pod");
    assert_eq!(nodes(&node, &pod), ["/dev/gpu1"]);
    // Two agents, such as an exporter of metrics and a detector of problems.
    for agent in ["exporter", "detector"] {
        let name = cdi_name(ALL, &[], agent);
        assert_eq!(nodes(&node, &name), all, "{agent}");
    }
    // They take no device from other pods.
    for device in ["gpu-0", "gpu-2"] {
        let name = cdi_name(GPU, &[device], device);
        assert_eq!(nodes(&node, &name).len(), 1);
    }
}

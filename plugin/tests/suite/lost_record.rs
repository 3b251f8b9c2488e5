//! A test with a kubelet that has lost its record of the pods that run.

use harness::kubelet::Allocation;
use nix::sys::signal::Signal;

use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};
use crate::pages::{SERVE, address, metric};

const POD: &str = "0f3f3a0e-5f0e-4a53-9f55-3c0a2f3f7a11";
const OTHER: &str = "11111111-5f0e-4a53-9f55-3c0a2f3f7a11";
const CONFLICTS: &str = "boathook_allocation_conflicts_total{resource=\"dummy.com/npu\"}";

fn allocation(pod: &str, devices: &[&str]) -> Allocation {
    Allocation {
        pod_uid: pod.to_owned(),
        ..Allocation::of_ids(NPU, devices)
    }
}

#[test]
fn a_device_that_the_kubelet_gives_away_while_its_pod_runs_is_reported_and_counted() {
    let classes = [("dummy-npu", NPUS)];
    let mut node = Node::new(&classes).with_arguments(&SERVE);
    node = node.with_arguments(&["--log-level=debug"]);
    let mut kubelet = node.serve(NPU);
    for container in ["sandbox", "container"] {
        let cgroup = format!("host/sys/fs/cgroup/kubepods/pod{POD}/{container}");
        node.write(&format!("{cgroup}/cgroup.events"), "populated 1\n");
    }
    kubelet
        .allocate(allocation(POD, &["npu-1", "npu-2"]))
        .unwrap();
    node.wait_log("the pods with 2 devices are known");
    kubelet.stop();
    node.remove("kubelet/device-plugins/kubelet_internal_checkpoint");
    // The plugin is started again as well: it knows the pod by its file.
    node.end_plugin(Signal::SIGKILL);
    kubelet.resume().unwrap();
    node.start_plugin();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    // The kubelet gets what it asks for, since the running pod may not use the device any more.
    kubelet
        .allocate(allocation(OTHER, &["npu-2", "npu-3"]))
        .unwrap();
    let address = address(&node);
    wait_until("the conflict", || metric(&address, CONFLICTS) == 1);
    node.wait_log(&format!("although pod {POD} runs"));
}

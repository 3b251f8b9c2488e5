//! Tests of the answer to `Allocate`: the variables, annotations and devices of a container.

use harness::kubelet::Allocation;

use crate::node::{NPU, NPUS, Node};

#[test]
fn a_container_gets_names_and_nothing_else() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    let given = kubelet
        .allocate(Allocation::of_ids(NPU, &["npu-10", "npu-3"]))
        .unwrap();
    let variable = (
        "DUMMY_VISIBLE_DEVICES".to_owned(),
        "npu-3,npu-10".to_owned(),
    );
    assert_eq!(given.envs, [variable].into());
    assert_eq!(
        given.annotations["devices.boathook.dev/dummy-npu"],
        "npu-3,npu-10"
    );
    let response = given.response;
    assert_eq!(
        response.annotations["cdi.k8s.io/boathook_dummy.com_npu"],
        "dummy.com.pods.boathook.dev/npu=npu-3,dummy.com.pods.boathook.dev/npu=npu-10"
    );
    assert_eq!(response.annotations.len(), 2);
    assert_eq!(
        (response.mounts, response.devices, response.cdi_devices),
        (vec![], vec![], vec![])
    );
}

#[test]
fn the_kubelet_chooses_among_what_is_free_and_records_it() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    let first = kubelet.allocate(Allocation::new(NPU, 2)).unwrap();
    let second = kubelet.allocate(Allocation::new(NPU, 62)).unwrap();
    assert_eq!((first.ids.len(), second.ids.len()), (2, 62));
    assert!(first.ids.iter().all(|id| !second.ids.contains(id)));
    let none_left = kubelet.allocate(Allocation::new(NPU, 1)).unwrap_err();
    assert_eq!(none_left, "1 of dummy.com/npu wanted, 0 available");

    let record = node.path("kubelet/device-plugins/kubelet_internal_checkpoint");
    let record = std::fs::read_to_string(record).unwrap();
    let ids = first.ids.join("\",\"");
    assert!(
        record.contains(&format!("\"DeviceIDs\":{{\"-1\":[\"{ids}\"]}}")),
        "{record}"
    );
}

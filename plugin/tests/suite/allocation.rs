//! What a container gets.

use std::collections::BTreeMap;

use harness::kubelet::Allocation;

use crate::node::{CARDS, NPU, NPUS, Node};

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn a_container_gets_names_and_nothing_else() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    let given = kubelet
        .allocate(Allocation::of_ids(NPU, &["npu-5", "npu-3"]))
        .unwrap();
    assert_eq!(given.envs, map(&[("DUMMY_VISIBLE_DEVICES", "npu-3,npu-5")]));
    assert_eq!(
        given.annotations["devices.boathook.dev/dummy-npu"],
        "npu-3,npu-5"
    );
    let response = given.response;
    assert_eq!(
        response.annotations["cdi.k8s.io/boathook_dummy.com_npu"],
        "dummy.com/npu=npu-3,dummy.com/npu=npu-5"
    );
    assert_eq!(response.annotations.len(), 2);
    assert_eq!(
        (response.mounts, response.devices, response.cdi_devices),
        (vec![], vec![], vec![])
    );
}

#[test]
fn a_device_brings_its_own_variables() {
    let mut node = Node::new(&[("cards", CARDS)]);
    node.add_card(0, "mark-1", -1);
    node.add_card(10, "mark-1", 1);
    let kubelet = node.serve("cards.example/mark-1");
    let allocation = Allocation::of_ids("cards.example/mark-1", &["card-10", "card-0"]);
    let given = kubelet.allocate(allocation).unwrap();
    let wanted = [
        ("CARD_VISIBLE_DEVICES", "card-0,card-10"),
        ("CARD_PORT", "/ports/0,/ports/10"),
    ];
    assert_eq!(given.envs, map(&wanted));
    assert_eq!(
        given.annotations["devices.boathook.dev/cards"],
        "card-0,card-10"
    );
}

#[test]
fn the_kubelet_chooses_among_what_is_free_and_records_it() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    let first = kubelet.allocate(Allocation::of(NPU, 2)).unwrap();
    let second = kubelet.allocate(Allocation::of(NPU, 62)).unwrap();
    assert_eq!((first.ids.len(), second.ids.len()), (2, 62));
    assert!(first.ids.iter().all(|id| !second.ids.contains(id)));
    let none_left = kubelet.allocate(Allocation::of(NPU, 1)).unwrap_err();
    assert_eq!(none_left, "1 of dummy.com/npu wanted, 0 available");

    let record = node.path("kubelet/device-plugins/kubelet_internal_checkpoint");
    let record = std::fs::read_to_string(record).unwrap();
    let ids = first.ids.join("\",\"");
    assert!(
        record.contains(&format!("\"DeviceIDs\":{{\"-1\":[\"{ids}\"]}}")),
        "{record}"
    );
}

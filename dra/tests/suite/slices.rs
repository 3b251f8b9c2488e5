//! Tests of the published slices, which the scheduler reads.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{CHECKPOINT, NPUS, Node, POD, SLICES, wait};
use crate::parts::name;
use crate::pod_resources::{PodResources, pods};

fn is_tainted(device: &Value) -> bool {
    device["taints"][0]["key"] == "boathook.dev/unhealthy"
}

async fn no_taint(node: &Node) {
    let none = |all: &[Value]| !all.iter().any(is_tainted);
    node.wait_devices("no taint", none).await;
}

#[tokio::test]
async fn a_device_is_published_with_its_attributes() {
    let mut node = Node::new(NPUS, 2).await;
    node.start().await;
    node.wait_count(2).await;
    let slices = node.slices();
    assert_eq!(slices.len(), 1);
    let spec = &slices[0]["spec"];
    assert_eq!(
        spec["pool"],
        json!({"name": "worker/npu", "generation": 1, "resourceSliceCount": 1})
    );
    assert_eq!(
        (&spec["nodeName"], &spec["driver"]),
        (&json!("worker"), &json!("boathook.dev"))
    );
    let owner = &slices[0]["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Node"), &json!("uid-of-worker"))
    );
    let wanted = json!({"name": "npu-0", "attributes": {
        "class": {"string": "npu"}, "resource": {"string": "dummy.com/npu"},
        "index": {"int": 0}, "memory": {"int": 64}}});
    assert_eq!(spec["devices"][0], wanted);
}

#[tokio::test]
async fn an_unhealthy_device_has_a_taint_until_it_recovers() {
    let mut node = Node::new(NPUS, 2).await;
    let driver = node.start().await;
    node.wait_count(2).await;
    node.device(1, "hot");
    node.wait_devices("a taint", |all| !is_tainted(&all[0]) && is_tainted(&all[1]))
        .await;
    let taint = &node.devices()[1]["taints"][0];
    assert_eq!(taint["effect"], "NoSchedule");
    // The kubelet also gets the reason, for the status of the pod.
    let health = driver.health().await.unwrap();
    let message = |at: usize| (health[at].health, health[at].message.as_str());
    assert_eq!(message(0), (1, ""));
    let (state, said) = message(1);
    assert!(state == 2 && said.contains("hot"), "{health:?}");
    node.device(1, "ok");
    no_taint(&node).await;
    assert_eq!(node.slices()[0]["spec"]["pool"]["generation"], 1);
}

#[tokio::test]
async fn nothing_is_written_without_a_change() {
    let mut node = Node::new(NPUS, 3).await;
    node.device(2, "hot");
    node.start().await;
    node.wait_devices("a taint", |all| all.len() == 3 && is_tainted(&all[2]))
        .await;
    // The driver scans the host every second, but writes nothing if no published value
    // changes.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(node.server.writes(), 1);
    // A new process of the driver finds the slices that it would write, so it writes nothing.
    node.start().await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(node.server.writes(), 1);
}

/// A pod that the scheduler places before the kubelet has registered the driver waits at least
/// a minute, so nothing is published before.
#[tokio::test]
async fn nothing_is_published_before_the_kubelet_has_registered_the_driver() {
    let mut node = Node::new(NPUS, 2).await;
    node.replaced();
    wait("the sockets", || !node.registration_sockets().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(node.slices(), [] as [Value; 0]);
    node.registered().await;
    node.wait_count(2).await;
}

#[tokio::test]
async fn deleted_slices_are_published_again() {
    let mut node = Node::new(NPUS, 2).await;
    node.start().await;
    node.wait_count(2).await;
    for _ in 0..3 {
        let slices = node.slices();
        let name = slices[0]["metadata"]["name"].as_str().unwrap();
        node.server.delete(&format!("{SLICES}/{name}"));
        node.wait_count(2).await;
    }
}

/// Another version of the driver may publish different slices and write them at once each
/// time. The driver waits longer before each answer.
#[tokio::test]
async fn who_changes_slices_back_and_forth_is_answered_less_and_less_often() {
    let mut node = Node::new(NPUS, 1).await;
    node.start().await;
    let index = |node: &Node| node.devices()[0]["attributes"]["index"]["int"].clone();
    node.wait_count(1).await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        if index(&node) == 0 {
            let mut other = node.slices()[0].clone();
            other["spec"]["devices"][0]["attributes"]["index"]["int"] = json!(7);
            let name = other["metadata"]["name"].as_str().unwrap().to_owned();
            node.server.put(&format!("{SLICES}/{name}"), other);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The first write is followed by answers after 1, 2 and 4 s.
    let writes = node.server.writes();
    assert!((2..=5).contains(&writes), "{writes}");
    wait("an answer", || index(&node) == 0).await;
}

#[tokio::test]
async fn a_pool_without_devices_is_an_empty_slice() {
    let mut node = Node::new(NPUS, 1).await;
    node.start().await;
    node.wait_count(1).await;
    fs::remove_dir_all(node.path("host/sys/npu/npu0")).unwrap();
    wait("an empty slice", || {
        node.slices().len() == 1 && node.devices().is_empty()
    })
    .await;
}

#[tokio::test]
async fn many_devices_are_several_slices_of_one_generation() {
    let mut node = Node::new(NPUS, 130).await;
    node.start().await;
    node.wait_count(130).await;
    let pools = |node: &Node| -> Vec<Value> {
        let slices = node.slices();
        slices
            .iter()
            .map(|slice| slice["spec"]["pool"].clone())
            .collect()
    };
    let pool = |generation: u32, count: u32| json!({"name": "worker/npu", "generation": generation, "resourceSliceCount": count});
    assert_eq!(pools(&node), vec![pool(1, 3); 3]);
    // Only the slice of the changed device is written.
    node.device(70, "hot");
    node.wait_devices("a taint", |all| {
        all.iter().filter(|one| is_tainted(one)).count() == 1
    })
    .await;
    assert_eq!(pools(&node), vec![pool(1, 3); 3]);
    for number in 120..130 {
        fs::remove_dir_all(node.path(&format!("host/sys/npu/npu{number}"))).unwrap();
    }
    wait("two slices", || pools(&node) == vec![pool(2, 2); 2]).await;
    assert_eq!(node.devices().len(), 120);
}

#[tokio::test]
async fn shares_are_a_capacity_or_where_that_is_dropped_devices() {
    let class = format!("{NPUS}[sharing]\nreplicas = 3\n");
    let mut node = Node::new(&class, 1).await;
    node.start().await;
    node.wait_count(1).await;
    let device = &node.devices()[0];
    assert_eq!(device["allowMultipleAllocations"], true);
    let policy = json!({"default": "1", "validRange": {"min": "1", "max": "3", "step": "1"}});
    assert_eq!(
        device["capacity"]["shares"],
        json!({"value": "3", "requestPolicy": policy})
    );

    let mut node = Node::new(&class, 1).await;
    node.server
        .drop_fields(&["allowMultipleAllocations", "taints"]);
    let driver = node.start().await;
    let shares = ["npu-0-share-0", "npu-0-share-1", "npu-0-share-2"];
    let are_shares = |all: &[Value]| all.iter().map(name).eq(shares);
    node.wait_devices("three shares", are_shares).await;
    node.allocate("a", "u-1", &[("r", "npu-0-share-2")]);
    driver.prepare_one(["n", "a", "u-1"]).await.unwrap();
    // If the API server drops taints, the driver does not publish unhealthy devices.
    node.device(0, "hot");
    node.wait_devices("no device", <[Value]>::is_empty).await;
    node.device(0, "ok");
    node.wait_count(3).await;
    let writes = node.server.writes();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(node.server.writes(), writes);
}

/// A constraint `matchAttribute` compares devices of several classes by these attributes.
#[tokio::test]
async fn devices_of_two_classes_on_one_root_have_the_same_attributes() {
    let class = |kind: &str| {
        format!(
            "version = 1\nresource = 'dummy.com/{kind}'\nrequest = {{ env = 'DUMMY_{kind}' }}\n\
             discover = [{{ path = '/sys/bus/pci/devices/{{bdf}}', \
             attributes = [{{ name = 'kind', file = 'kind' }}], \
             require = [{{ value = '{{kind}}', equals = '{kind}' }}] }}]\n\
             [device]\nid = '{{bdf}}'\nnuma = '/sys/bus/pci/devices/{{bdf}}'\n\
             env = {{ BDF = '{{bdf}}' }}\n"
        )
    };
    let mut node = Node::new(&class("npu"), 0).await;
    node.write("classes/nic.toml", &class("nic"));
    node.configure("[class.npu]\nserve = 'dra'\n[class.nic]\nserve = 'dra'\n");
    let links = node.path("host/sys/bus/pci/devices");
    fs::create_dir_all(&links).unwrap();
    for (root, address, kind, numa) in [
        ("pci0000:15", "0000:16:00.0", "npu", "0"),
        ("pci0000:95", "0000:96:00.0", "npu", "1"),
        ("pci0000:95", "0000:97:00.0", "nic", "1"),
    ] {
        let device = format!("host/sys/devices/{root}/{address}");
        fs::create_dir_all(node.path(&device)).unwrap();
        node.write(&format!("{device}/kind"), kind);
        node.write(&format!("{device}/numa_node"), numa);
        let target = format!("../../../devices/{root}/{address}");
        std::os::unix::fs::symlink(target, links.join(address)).unwrap();
    }
    node.start().await;
    node.wait_count(3).await;
    let of = |device: &Value| {
        let value = |name: &str, kind: &str| {
            device["attributes"][&format!("resource.kubernetes.io/{name}")][kind].clone()
        };
        let text = ["pcieRoot", "pciBusID"].map(|name| value(name, "string"));
        (device["name"].clone(), text, value("numaNode", "int"))
    };
    let mut published: Vec<_> = node.devices().iter().map(of).collect();
    published.sort_by_key(|(name, ..)| name.to_string());
    let wanted = [
        ("0000-16-00-0", ["pci0000:15", "0000:16:00.0"], 0),
        ("0000-96-00-0", ["pci0000:95", "0000:96:00.0"], 1),
        ("0000-97-00-0", ["pci0000:95", "0000:97:00.0"], 1),
    ];
    let wanted =
        wanted.map(|(name, text, numa)| (json!(name), text.map(|one| json!(one)), json!(numa)));
    assert_eq!(published, wanted);
}

/// If the checkpoint cannot be read, any device may be in use. The taint is NoSchedule and
/// never NoExecute, so no pod that has a device is deleted.
#[tokio::test]
async fn while_it_is_unknown_what_the_plugin_gave_away_no_device_is_free() {
    let mut node = Node::new(NPUS, 2).await;
    node.options = vec!["--unhealthy=no-execute".to_owned()];
    node.write(CHECKPOINT, "{");
    let driver = node.start().await;
    node.wait_count(2).await;
    for device in node.devices() {
        let taint = &device["taints"][0];
        assert!(
            is_tainted(&device) && taint["effect"] == "NoSchedule",
            "{taint}"
        );
    }
    // The health that a pod with the device sees does not depend on this taint.
    let health = driver.health().await.unwrap();
    assert!(health.iter().all(|one| one.health == 1), "{health:?}");
    fs::remove_file(node.path(CHECKPOINT)).unwrap();
    no_taint(&node).await;
}

/// A device that a container has from the device plugin is not offered before that container
/// ends.
#[tokio::test]
async fn a_device_that_the_plugin_gave_away_has_a_taint() {
    let mut node = Node::new(NPUS, 2).await;
    let (npu, second) = ("dummy.com/npu", &["NPU.1"]);
    let is_tainted_alone = |all: &[Value]| all.len() == 2 && is_tainted(&all[1]);
    node.by_plugin(npu, second);
    node.start().await;
    node.wait_devices("a taint", is_tainted_alone).await;
    node.by_plugin(npu, &[]);
    no_taint(&node).await;

    // While the checkpoint cannot be read, the devices stay as they were.
    node.by_plugin(npu, second);
    node.wait_devices("a taint", is_tainted_alone).await;
    node.write(CHECKPOINT, "{");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(is_tainted(&node.devices()[1]));

    // The checkpoint still has the devices of pods that have ended, so the PodResources list
    // decides. A list without the driver's own pod, as from a kubelet that is just starting,
    // is not complete and is ignored.
    node.by_plugin(npu, second);
    let kubelet = PodResources::start(&node.path("kubelet"));
    let own = node.instance.clone();
    let slice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podp.slice";
    let own_slice = slice.replace("podp", &format!("pod{}", own.replace('-', "_")));
    let own_v1 = format!("pids/kubepods/burstable/pod{own}");
    for (listed, cgroups, is_held) in [
        (
            &[("other", &["NPU.0"][..]), (POD, &[])][..],
            &[&*own_slice][..],
            false,
        ),
        (&[("holder", &["NPU.1"]), (POD, &[])], &[&own_slice], true),
        (&[(POD, &[])], &[&own_slice], false),
        (&[("other", &["NPU.0"])], &[&own_slice], true),
        (&[(POD, &[])], &[&own_slice], false),
        (&[(POD, &[])], &[], true),
        // The PodResources list does not contain the devices of init containers.
        (
            &[(POD, &[])],
            &[&own_slice, "devices/kubepods/podother"],
            false,
        ),
        (&[("p", &[]), (POD, &[])], &[&own_slice, slice], true),
        (&[(POD, &[])], &[&own_v1], false),
        (
            &[("p", &[]), (POD, &[])],
            &[&own_slice, "devices/kubepods/podp"],
            true,
        ),
    ] {
        let directory = node.path("host/sys/fs/cgroup");
        _ = fs::remove_dir_all(&directory);
        for cgroup in cgroups {
            fs::create_dir_all(directory.join(cgroup).join("container")).unwrap();
        }
        kubelet.lists(pods(listed));
        if is_held {
            node.wait_devices("a taint", is_tainted_alone).await
        } else {
            no_taint(&node).await
        }
    }
}

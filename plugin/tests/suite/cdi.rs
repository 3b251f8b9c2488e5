//! Tests of CDI specifications: a device is advertised only after a specification has its
//! name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use harness::kubelet::{Allocation, FakeKubelet};
use nix::sys::signal::Signal;

use crate::node::{
    CARDS, NPU, NPUS, Node, PATIENCE, cards_with_logged_faults, wait_list, wait_until,
};
use crate::pages::{SERVE, address, metric};

const FILE: &str = "cdi/boathook-cards.example.pods.boathook.dev-big.json";
const BIG: &str = "cards.example/big";

/// A node with one card, whose plugin serves its metrics.
fn node() -> Node {
    let node = Node::new(&[("cards", CARDS)]).with_arguments(&SERVE);
    node.add_card(0, "big", 0);
    node
}

/// Returns, for each device name in the file, the argument of the hook that grants the device.
fn grants(file: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let specification: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let devices = specification["devices"].as_array().cloned();
    let devices = devices.unwrap_or_default().into_iter();
    let grants = devices.map(|device| {
        let grant = &device["containerEdits"]["hooks"][0]["args"][3];
        let [name, grant] = [&device["name"], grant].map(|text| text.as_str().unwrap().to_owned());
        (name, grant)
    });
    grants.collect()
}

fn names(file: &Path) -> Vec<String> {
    grants(file).into_keys().collect()
}

/// Waits for a list in which each device has the health `wanted`.
fn wait_health(kubelet: &FakeKubelet, wanted: &str) {
    wait_list(kubelet, |devices| {
        devices.iter().all(|device| device.health == wanted)
    });
}

#[test]
fn files_follow_the_devices_and_come_back_when_they_are_removed() {
    let mut node = node().without_rescans();
    let file = node.path(FILE);
    let _kubelet = node.serve(BIG);
    assert_eq!(names(&file), ["0", "all", "card-0"]);
    let text = fs::read_to_string(&file).unwrap();
    let hook = "/opt/boathook/current/bin/boathook-hook";
    assert!(text.contains(hook), "{text}");
    node.add_card(1, "big", 0);
    let both = ["0", "1", "all", "card-0", "card-1"];
    wait_until("the second card", || names(&file) == both);
    // The directory is often a tmpfs, and another program may empty it. The plugin writes the
    // file again.
    fs::remove_file(&file).unwrap();
    wait_until("the file again", || names(&file) == both);
    for card in ["host/dev/card0", "host/dev/card1"] {
        node.remove(card);
    }
    wait_until("the end of the file", || !file.exists());
}

/// The file stays after the plugin has ended, because containers with its devices must be able
/// to start again without the plugin.
#[test]
fn the_file_survives_the_plugin() {
    let mut node = node();
    let file = node.path(FILE);
    let kubelet = node.serve(BIG);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        node.end_plugin(signal);
        assert_eq!(names(&file), ["0", "all", "card-0"], "{signal}");
        node.start_plugin();
        kubelet.wait_devices(PATIENCE, BIG).unwrap();
    }
}

/// An engine refuses a container with a device that no CDI specification names, so such a
/// device is unhealthy.
#[test]
fn without_its_file_a_device_is_unhealthy() {
    let mut node = node();
    // The plugin cannot write a specification, because this path is a file and not a
    // directory.
    node.write("cdi", "");
    let kubelet = node.kubelet();
    node.start_plugin();
    let address = address(&node);
    wait_health(&kubelet, "Unhealthy");
    node.wait_log("CDI: cannot read the directory ");
    wait_until("the count", || metric(&address, "boathook_cdi_errors") == 1);
    node.remove("cdi");
    wait_health(&kubelet, "Healthy");
    assert_eq!(names(&node.path(FILE)), ["0", "all", "card-0"]);
    wait_until("no error", || metric(&address, "boathook_cdi_errors") == 0);
}

/// Only the plugin reads the kernel's log, so it removes an unhealthy device from the name `all`
/// of the specification. The device keeps its own name there, so a container that has it can
/// start again.
#[test]
fn health_is_the_same_in_the_list_and_in_the_file() {
    let mut node = Node::new(&[("cards", &cards_with_logged_faults())]);
    node.add_card(0, "big", 0);
    node.add_card(1, "big", 0);
    node.write("host/dev/kmsg", "");
    let kubelet = node.serve(BIG);
    let file = node.path(FILE);
    assert_eq!(grants(&file)["all"], "cards=card-0,card-1");
    let log = File::options()
        .append(true)
        .open(node.path("host/dev/kmsg"));
    log.unwrap().write_all(b"3,1,1,-;card1: fault 7\n").unwrap();
    wait_list(&kubelet, |devices| devices[1].health == "Unhealthy");
    assert_eq!(grants(&file)["all"], "cards=card-0");
    assert_eq!(grants(&file)["card-1"], "cards=card-1");
}

#[test]
fn an_allocation_names_each_device_once() {
    let class = format!("{NPUS}sharing = {{ replicas = 2 }}\n");
    let shares = ["npu-5::1", "npu-3::0", "npu-5::0"];
    for (delivery, wanted) in [
        (
            "cdi",
            Some("dummy.com.pods.boathook.dev/npu=npu-3,dummy.com.pods.boathook.dev/npu=npu-5"),
        ),
        ("handler", None),
    ] {
        let mut node = Node::new(&[("dummy-npu", &class)]);
        node = node.with_arguments(&["--delivery", delivery]);
        let kubelet = node.serve(NPU);
        let given = kubelet.allocate(Allocation::of_ids(NPU, &shares));
        let response = given.unwrap().response;
        let key = "cdi.k8s.io/boathook_dummy.com_npu";
        let annotation = response.annotations.get(key).map(String::as_str);
        assert_eq!(annotation, wanted);
        assert_eq!(node.path("cdi").exists(), wanted.is_some());
    }
}

/// A service of the vendor writes its file at a boot or when the driver changes, while the plugin
/// serves.
#[test]
fn a_vendors_file_of_the_resources_kind_is_no_conflict() {
    let mut node = node();
    let kubelet = node.serve(BIG);
    node.write(
        "cdi/vendor.yaml",
        "cdiVersion: 0.5.0\nkind: cards.example/big\ndevices:\n- name: card-0\n",
    );
    for _ in 0..2 {
        crate::pages::wait_for_scan(&address(&node));
    }
    // No list of other devices or another health follows.
    let list = kubelet.wait_devices(Duration::from_secs(1), BIG);
    assert!(list.is_err(), "{list:?}");
    assert_eq!(names(&node.path(FILE)), ["0", "all", "card-0"]);
    assert_eq!(metric(&address(&node), "boathook_cdi_errors"), 0);
    assert!(node.path("cdi/vendor.yaml").exists());
}

#[test]
fn a_conflict_is_logged_once_and_counted_until_it_is_over() {
    let mut node = node();
    node.write(
        "cdi/vendor.yaml",
        "kind: cards.example.pods.boathook.dev/big\n",
    );
    let kubelet = node.kubelet();
    node.start_plugin();
    let address = address(&node);
    wait_health(&kubelet, "Unhealthy");
    let errors = || metric(&address, "boathook_cdi_errors");
    wait_until("the conflict", || errors() == 1);
    for _ in 0..2 {
        crate::pages::wait_for_scan(&address);
    }
    let log = node.log();
    assert_eq!(
        log.matches("CDI: cards.example.pods.boathook.dev/big")
            .count(),
        1,
        "{log}"
    );
    node.remove("cdi/vendor.yaml");
    wait_health(&kubelet, "Healthy");
    wait_until("the end of the conflict", || errors() == 0);
    assert!(node.path(FILE).exists());
}

/// The plugin leaves the file that another program wrote. Otherwise two plugins with different
/// classes would remove each other's files again and again.
#[test]
fn a_file_that_another_program_wrote_later_is_left_alone() {
    let mut node = node();
    let old = "cdi/boathook-old.example.pods.boathook.dev-x.json";
    node.write(old, "{\"kind\": \"old.example.pods.boathook.dev/x\"}");
    // `boathook cdi generate` has written this file for people.
    let for_people = "cdi/boathook-cards.example-big.json";
    node.write(for_people, "{\"kind\": \"cards.example/big\"}");
    let _kubelet = node.serve(BIG);
    assert!(!node.path(old).exists());
    let other = "cdi/boathook-other.example.pods.boathook.dev-x.json";
    node.write(other, "{\"kind\": \"other.example.pods.boathook.dev/x\"}");
    for _ in 0..2 {
        crate::pages::wait_for_scan(&address(&node));
    }
    assert!(node.path(other).exists());
    assert!(node.path(for_people).exists());
}

/// The engine would refuse to start a container again whose device is in no file, and would not
/// say why. With the file the hook says it.
#[test]
fn the_file_of_a_class_that_is_disabled_stays_until_no_pod_has_devices_of_it() {
    const POD: &str = "0f3f3a0e-5f0e-4a53-9f55-3c0a2f3f7a11";
    let mut node = Node::new(&[("cards", CARDS), ("dummy-npu", NPUS)]);
    node.add_card(0, "big", 0);
    let kubelet = node.serve(BIG);
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    let cgroup = format!("host/sys/fs/cgroup/kubepods/besteffort/pod{POD}/container");
    node.write(&format!("{cgroup}/cgroup.events"), "populated 0\n");
    let allocation = Allocation {
        pod_uid: POD.to_owned(),
        ..Allocation::of_ids(NPU, &["npu-1"])
    };
    kubelet.allocate(allocation).unwrap();
    let npus = node.path("cdi/boathook-dummy.com.pods.boathook.dev-npu.json");
    let text = fs::read_to_string(&npus).unwrap();
    node.configure("[class.dummy-npu]\nenabled = false\n");
    let stays = "boathook-dummy.com.pods.boathook.dev-npu.json stays until";
    for times in 1..=2 {
        node.end_plugin(Signal::SIGTERM);
        node.start_plugin();
        wait_until("the file is kept", || {
            node.log().matches(stays).count() == times
        });
        assert_eq!(fs::read_to_string(&npus).unwrap(), text);
    }
    // The kubelet keeps the pod in its record until it allocates something.
    fs::remove_dir_all(node.path(&cgroup).parent().unwrap()).unwrap();
    wait_until("the end of the file", || !npus.exists());
    assert!(node.path(FILE).exists());
}

/// A broken class does not keep the file of another class that is no longer served. An engine
/// refuses a device that two files describe, so the file would stop a vendor's own plugin.
#[test]
fn a_class_that_is_disabled_loses_its_file_although_another_class_is_broken() {
    let mut node = Node::new(&[("cards", CARDS), ("dummy-npu", NPUS)]);
    node.add_card(0, "big", 0);
    let kubelet = node.serve(BIG);
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    let npus = node.path("cdi/boathook-dummy.com.pods.boathook.dev-npu.json");
    assert!(npus.exists());
    node.end_plugin(Signal::SIGTERM);
    node.write("classes/cards.toml", "broken");
    node.configure("[class.dummy-npu]\nenabled = false\n");
    node.start_plugin();
    wait_until("the end of the file", || !npus.exists());
    assert!(node.path(FILE).exists());
    // When it is sound again, but not enabled, its file goes too.
    node.write("classes/cards.toml", &format!("enabled = false\n{CARDS}"));
    wait_until("the end of the other file", || !node.path(FILE).exists());
}

/// Where /opt and /etc cannot be written to, hook and configuration are elsewhere on the host, and the
/// engine calls the hook by the specification alone.
#[test]
fn the_specification_names_hook_and_configuration_of_the_host() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&[
        "--hook=/var/lib/boathook/current/bin/boathook-hook",
        "--hook-config=/var/lib/boathook-config/boathook/config.toml",
    ]);
    let _kubelet = node.serve(NPU);
    let file = node.path("cdi/boathook-dummy.com.pods.boathook.dev-npu.json");
    let text = fs::read_to_string(file).unwrap();
    let specification: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hook = &specification["devices"][0]["containerEdits"]["hooks"][0];
    assert_eq!(hook["path"], "/var/lib/boathook/current/bin/boathook-hook");
    let config = ["--config", "/var/lib/boathook-config/boathook/config.toml"];
    assert_eq!(hook["args"].as_array().unwrap()[2..4], config);
}

//! Specifications of CDI that follow the devices.

use std::fs;
use std::path::PathBuf;

use crate::node::{CARDS, Node, wait_until};
use crate::pages::{SERVE, address, metric};

const FILE: &str = "cdi/boathook-cards.example-big.json";

/// A node whose plugin writes specifications of the cards.
fn node() -> Node {
    let node = Node::new(&[("cards", CARDS)]).with_arguments(&SERVE);
    let directory = node.path("cdi");
    node.with_arguments(&["--cdi", directory.to_str().unwrap()])
}

/// The names of the devices in the file.
fn names(file: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let specification: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let devices = specification["devices"].as_array().cloned();
    let devices = devices.unwrap_or_default();
    let names = devices.iter().map(|device| device["name"].as_str());
    names.map(|name| name.unwrap().to_owned()).collect()
}

#[test]
fn files_follow_the_devices_and_come_back_when_they_are_removed() {
    let mut node = node();
    let file = node.path(FILE);
    node.add_card(0, "big", 0);
    node.start_plugin();
    wait_until("the file", || names(&file) == ["card-0", "0", "all"]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("/opt/boathook/current/bin/boathook"),
        "{text}"
    );
    node.add_card(1, "big", 0);
    let both = ["card-0", "0", "card-1", "1", "all"];
    wait_until("the second card", || names(&file) == both);
    // The directory is a tmpfs that others may empty.
    fs::remove_file(&file).unwrap();
    wait_until("the file again", || names(&file) == both);
    for card in ["host/dev/card0", "host/dev/card1"] {
        node.remove(card);
    }
    wait_until("the end of the file", || !file.exists());
}

/// In a container the host is mounted somewhere; engines read its own paths.
#[test]
fn paths_are_those_that_engines_see() {
    let class = format!("{CARDS}\n[[edits]]\nfiles = [\"/etc/card.conf\"]\n");
    let mut node = Node::new(&[("cards", &class)]);
    let [directory, root] = ["cdi", ""].map(|name| node.path(name).display().to_string());
    node = node.with_arguments(&["--cdi", &directory, "--host-root", &root]);
    node = node.with_arguments(&["--cdi-form", "plain"]);
    node.write(
        "config.toml",
        "classes = [\"/classes\"]\nhost_root = \"/host\"\n",
    );
    node.write("host/etc/card.conf", "");
    node.add_card(0, "big", 0);
    node.start_plugin();
    let file = node.path(FILE);
    wait_until("the file", || file.exists());
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("\"hostPath\": \"/host/etc/card.conf\""),
        "{text}"
    );
}

#[test]
fn nodes_alone_are_enough_for_the_plain_form() {
    let mut node = node().with_arguments(&["--cdi-form", "plain"]);
    let file = node.path(FILE);
    node.add_card(0, "big", 0);
    node.start_plugin();
    wait_until("the file", || file.exists());
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        !text.contains("hooks") && text.contains("CARD_PORT=/ports/0"),
        "{text}"
    );
}

#[test]
fn a_conflict_is_logged_once_and_counted_until_it_is_over() {
    let mut node = node();
    node.write("cdi/vendor.yaml", "kind: cards.example/big\n");
    node.add_card(0, "big", 0);
    node.start_plugin();
    let address = address(&node);
    let errors = || metric(&address, "boathook_cdi_errors");
    wait_until("the conflict", || errors() == 1);
    for _ in 0..2 {
        crate::pages::wait_for_scan(&address);
    }
    let log = node.log();
    assert_eq!(
        log.matches("describes devices of this kind").count(),
        1,
        "{log}"
    );
    node.remove("cdi/vendor.yaml");
    wait_until("the end of the conflict", || errors() == 0);
    assert!(node.path(FILE).exists());
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_of_its_own() {
    let mut node = Node::new(&[("cards", CARDS)])
        .with_arguments(&SERVE)
        .with_arguments(&["--cdi", "/proc/sys/cdi"]);
    node.add_card(0, "big", 0);
    let _kubelet = node.serve("cards.example/big");
    node.wait_log("CDI: cannot create the directory /proc/sys/cdi: ");
    wait_until("the count", || {
        metric(&address(&node), "boathook_cdi_errors") == 1
    });
}

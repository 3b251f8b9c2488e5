//! Tests of the labels of the node, in a file for Node Feature Discovery.

use std::fs;

use crate::node::{CARDS, MARK_1, Node, wait_until};

const LABELS: &str = r#"
[labels]
"cards.example/model" = "{model}"
"cards.example/slot" = "{index}"
".slot" = { value = "slot {index}", map = { "slot 0" = "first" }, regex = '^[a-z]+$' }
"cards.example/generation" = { value = "{model}", regex = "([0-9]+)$", none_of = ["9"] }
"#;

/// The file that the plugin writes. Its directory does not exist.
const FILE: &str = "features.d/labels";

/// Returns a node with a class of cards that has labels. The plugin writes [`FILE`].
fn node(classes: &[(&str, &str)]) -> Node {
    let node = Node::new(classes);
    let file = format!("--node-labels={}", node.path(FILE).display());
    node.with_arguments(&[&file])
}

fn read(node: &Node) -> Option<String> {
    fs::read_to_string(node.path(FILE)).ok()
}

fn wait_for(node: &Node, expected: &str) {
    wait_until(expected, || read(node).as_deref() == Some(expected));
}

/// A value in which the devices differ says nothing about the one that a pod gets, so the label
/// `slot` is there for one card only.
#[test]
fn the_file_has_the_labels_in_which_all_devices_agree() {
    let class = format!("{CARDS}{LABELS}");
    let mut node = node(&[("cards", &class)]);
    node.add_card(0, "mark-1", 0);
    let _kubelet = node.serve(MARK_1);
    wait_for(
        &node,
        "cards.example/generation=1\ncards.example/mark-1.count=1\ncards.example/mark-1.slot=first\n\
         cards.example/model=mark-1\ncards.example/slot=0\n",
    );
    node.add_card(1, "mark-1", 0);
    wait_for(
        &node,
        "cards.example/generation=1\ncards.example/mark-1.count=2\ncards.example/mark-1.slot=first\n\
         cards.example/model=mark-1\n",
    );
    node.add_card(2, "mark-9", 0);
    wait_for(
        &node,
        "cards.example/generation=1\ncards.example/mark-1.count=2\ncards.example/mark-1.slot=first\n\
         cards.example/mark-9.count=1\n",
    );
    for card in 0..3 {
        node.remove(&format!("host/dev/card{card}"));
    }
    wait_until("no file without devices", || read(&node).is_none());
}

/// The sum of all devices, each of which counts once; values that are no numbers are not added.
#[test]
fn a_label_may_be_the_sum_of_all_devices() {
    let class = format!(
        "{CARDS}[sharing]\nreplicas = 4\n[labels]\n\
         'cards.example/memory' = {{ value = '{{index}}', map = {{ 1 = '16', 2 = '32', 3 = 'unknown' }}, sum = true, none_of = ['0'] }}\n"
    );
    let other =
        "extends = 'cards'\nresource = 'cards.example/other'\n[request]\nenv = 'OTHER_CARDS'\n";
    let mut node = node(&[("cards", &class), ("other", other)]);
    node.add_card(0, "mark-1", 0);
    let _kubelet = node.serve(MARK_1);
    for (card, memory) in [(0, None), (1, Some(16)), (2, Some(48)), (3, Some(48))] {
        if card > 0 {
            node.add_card(card, "mark-1", 0);
        }
        let count = card + 1;
        let memory = memory.map(|memory| format!("cards.example/memory={memory}\n"));
        wait_for(
            &node,
            &format!(
                "cards.example/mark-1.count={count}\n{}cards.example/other.count={count}\n",
                memory.unwrap_or_default()
            ),
        );
    }
}

/// Shares are no devices, and an unhealthy device is still in the node.
#[test]
fn shares_count_as_one_device_whatever_its_health() {
    let class = format!(
        "{CARDS}[sharing]\nreplicas = 4\n[labels]\n'cards.example/model' = '{{model}}{{shared_suffix}}'\n\
         'cards.example/replicas' = '{{replicas}}'\n"
    );
    let mut node = node(&[("cards", &class)]);
    node.add_card(0, "mark-1", 0);
    node.add_card(1, "mark-1", 0);
    node.write("host/sys/card1/health", "broken\n");
    let _kubelet = node.serve(MARK_1);
    wait_for(
        &node,
        "cards.example/mark-1.count=2\ncards.example/model=mark-1-SHARED\ncards.example/replicas=4\n",
    );
}

/// A class for monitoring offers the same cards again, all as one. It inherits labels, with other
/// values than those of the class that it extends.
#[test]
fn a_class_of_all_devices_as_one_has_only_their_number() {
    let class = format!("{CARDS}{LABELS}'cards.example/replicas' = '{{replicas}}'\n");
    let monitoring = "extends = 'cards'\nresource = 'cards.example/monitoring'\n\
                      [request]\nenv = 'CARDS_MONITORING'\n[sharing]\ncombine = true\nreplicas = 10\n";
    let mut node = node(&[("cards", &class), ("cards-monitoring", monitoring)]);
    node.add_card(0, "mark-1", 0);
    let _kubelet = node.serve(MARK_1);
    wait_for(
        &node,
        "cards.example/generation=1\ncards.example/mark-1.count=1\ncards.example/mark-1.slot=first\n\
         cards.example/model=mark-1\ncards.example/monitoring.count=1\ncards.example/replicas=1\n\
         cards.example/slot=0\n",
    );
}

/// The devices of a class file that cannot be read may still be there.
#[test]
fn labels_stay_while_a_class_file_is_broken() {
    let class = format!("{CARDS}{LABELS}");
    let mut node = node(&[("cards", &class)]);
    node.add_card(0, "mark-1", 0);
    let _kubelet = node.serve(MARK_1);
    wait_until("the file", || read(&node).is_some());
    let before = read(&node);
    node.write("classes/cards.toml", "version = 1\nresuorce = 1\n");
    node.wait_log("resuorce");
    node.add_card(1, "mark-1", 0);
    node.write("classes/more.toml", "version = 1\nresuorce = 1\n");
    node.wait_log("more.toml");
    assert_eq!(read(&node), before);
}

#[test]
fn a_file_that_cannot_be_written_is_a_warning() {
    let mut node = Node::new(&[("cards", CARDS)]);
    node.write("taken", "");
    let file = format!("--node-labels={}", node.path("taken/labels").display());
    node = node.with_arguments(&[&file]);
    node.add_card(0, "mark-1", 0);
    let _kubelet = node.serve(MARK_1);
    node.wait_log("taken/labels: cannot write the labels of the node: File exists");
}

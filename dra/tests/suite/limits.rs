//! Tests of claims for devices of several classes, and of the limits of the Kubernetes API.

use std::collections::BTreeSet;
use std::iter::repeat_n;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{NPUS, Node, allocation, refused, result, watched};

#[tokio::test]
async fn a_claim_may_have_devices_of_two_classes() {
    let mut node = Node::new(NPUS, 2).await;
    node.add_others();
    let driver = node.start().await;
    // One request may have devices of both classes if it uses a DeviceClass that selects both.
    let results = [
        result("first", "npu", "npu-1"),
        result("first", "other", "other-0"),
        result("second/large", "other", "other-1"),
    ];
    node.claim("a", "u-1", allocation(results));
    let devices = driver.prepare_one(["n", "a", "u-1"]).await.unwrap();
    assert_eq!(devices.len(), 3);
    assert!(
        devices.iter().all(|one| one.cdi_device_ids.len() == 1),
        "{devices:?}"
    );
    let specified = node.specified("u-1");
    let grants: Vec<&Value> = specified
        .iter()
        .map(|one| &one["containerEdits"]["hooks"][0]["args"][3])
        .collect();
    assert_eq!(
        grants,
        ["npu=NPU.1@u-1", "other=other-0@u-1", "other=other-1@u-1"]
    );
    // One device that does not exist makes the whole claim fail, and nothing is left of the
    // claim.
    let results = [result("r", "npu", "npu-0"), result("r", "other", "other-7")];
    node.claim("b", "u-2", allocation(results));
    let wanted = "worker/other has no device other-7";
    refused(driver.prepare_one(["n", "b", "u-2"]), wanted).await;
    assert_eq!(node.names("cdi"), ["boathook.dev-claim-u-1.json"]);
}

/// The driver leaves out what exceeds a limit, because the API server refuses a whole slice
/// that has one attribute or device too many.
#[tokio::test]
async fn what_a_slice_has_no_room_for_is_left_out() {
    let long = "x".repeat(65);
    let attribute = |number: usize| format!("{{ name = 'a{number:02}', value = '{number}' }}");
    let mut attributes: Vec<String> = (0..40).map(attribute).collect();
    attributes.push(format!("{{ name = 'a_long_value', value = '{long}' }}"));
    attributes.push(format!("{{ name = '{}', value = 'a' }}", "a".repeat(33)));
    let memory = "{ name = 'memory', file = 'memory' }";
    let class = NPUS.replace(memory, &format!("{memory}, {}", attributes.join(", ")));
    let mut node = Node::new(&class, 1).await;
    node.start().await;
    node.wait_count(1).await;
    let devices = node.devices();
    let attributes = devices[0]["attributes"].as_object().unwrap();
    assert!(attributes.len() <= 32, "{attributes:?}");
    assert!(!attributes.contains_key("a_long_value"));
    assert!(
        attributes
            .keys()
            .all(|name| name.rsplit('/').next().unwrap().len() <= 32)
    );
    let is_short = |value: &Value| value["string"].as_str().is_none_or(|text| text.len() <= 64);
    assert!(attributes.values().all(is_short), "{attributes:?}");
    assert_eq!(attributes["class"], json!({"string": "npu"}));
}

/// The driver refuses more devices than the API server allows. Checking a very long list would
/// delay all other claims.
#[tokio::test]
async fn a_claim_with_too_many_devices_is_refused_while_others_are_prepared() {
    let mut node = Node::new(NPUS, 2).await;
    let driver = node.start().await;
    node.wait_count(2).await;
    let many = |count| allocation(repeat_n(result("r", "npu", "npu-0"), count));
    node.claim("most", "u-1", many(128));
    driver.prepare_one(["n", "most", "u-1"]).await.unwrap();
    driver.unprepare(["n", "most", "u-1"]).await.unwrap();
    for count in [129, 100_000] {
        node.claim("a", "u-2", many(count));
        node.allocate("b", "u-3", &[("r", "npu-1")]);
        let wanted = format!(
            "claim n/a: the claim has {count} devices of boathook.dev; the limit of this driver is 128"
        );
        let large = refused(driver.prepare_one(["n", "a", "u-2"]), &wanted);
        let start = Instant::now();
        let small = async {
            driver.prepare_one(["n", "b", "u-3"]).await.unwrap();
            start.elapsed()
        };
        let ((), small) = tokio::join!(large, small);
        println!(
            "{count} devices: refused after {:.0?}, another claim was prepared after {small:.0?}",
            start.elapsed()
        );
        assert!(small < Duration::from_secs(20), "{small:?}");
    }
}

/// The driver refuses other names, because the kube crate puts a name into the path of a
/// request without escaping it.
#[tokio::test]
async fn names_of_claims_are_names_and_no_paths() {
    let mut node = Node::new(NPUS, 1).await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    let driver = node.start().await;
    node.wait_count(1).await;
    for name in ["a?watch=false", "a#", "../resourceclaims/a", "%61", "A", ""] {
        refused(
            driver.prepare_one(["n", name, "u-1"]),
            "is not the name of a claim",
        )
        .await;
    }
    for namespace in ["../namespaces/n", "n/resourceclaims/a?", "n.n", ""] {
        let wanted = "is not the name of a namespace";
        refused(driver.prepare_one([namespace, "a", "u-1"]), wanted).await;
    }
    assert_eq!(node.names("cdi"), [""; 0]);
    driver.prepare_one(["n", "a", "u-1"]).await.unwrap();
}

/// The recipe of docs/dra.md for a monitoring agent on a node with more devices than a claim may
/// have: claims for some of the indexes each. All of them are prepared beside those of others.
#[tokio::test]
async fn claims_with_admin_access_divide_many_devices_by_their_index() {
    let mut node = Node::new(NPUS, 70).await;
    let driver = node.start().await;
    node.wait_count(70).await;
    let claim = ["n", "owner", "u-0"];
    node.allocate("owner", "u-0", &[("r", "npu-40")]);
    driver.prepare_one(claim).await.unwrap();
    let published = node.devices();
    let mut given = BTreeSet::new();
    for (part, first) in ["a", "b", "c"].into_iter().zip([0, 32, 64]) {
        // As the scheduler evaluates the selector of the recipe.
        let is_selected = |device: &&Value| {
            let index = device["attributes"]["index"]["int"].as_u64().unwrap();
            (first..first + 32).contains(&index)
        };
        let selected = published.iter().filter(is_selected);
        let names: Vec<&str> = selected.map(|one| one["name"].as_str().unwrap()).collect();
        assert!((1..=32).contains(&names.len()), "{names:?}");
        let uid = format!("u-{part}");
        node.claim(
            part,
            &uid,
            allocation(names.iter().map(|name| watched(name))),
        );
        let devices = driver.prepare_one(["n", part, &uid]).await.unwrap();
        assert_eq!(devices.len(), names.len());
        given.extend(names);
    }
    assert_eq!(given.len(), 70);
}

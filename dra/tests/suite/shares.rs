//! Devices that were shared and are no more, or the reverse, while claims are prepared.

use harness::kubelet::dra::DraDriver;
use serde_json::{Value, json};

use crate::node::{NPUS, Node};
use crate::parts;

/// The device and its shares in both forms, as the scheduler allocates them.
const WHOLE: Option<&str> = None;
const ONE: Option<&str> = Some("1");

fn replicas(node: &Node, more: &str) {
    node.configure(&format!("[class.npu]\nserve = 'dra'\n{more}"));
}

fn claim(node: &Node, name: &str, device: &str, shares: Option<&str>, admin: bool) {
    let mut result = json!({"request": "r", "driver": "boathook.dev", "pool": "worker/npu",
        "device": device, "adminAccess": admin});
    if let Some(shares) = shares {
        result["shareID"] = format!("share-of-{name}").into();
        result["consumedCapacity"] = json!({"shares": shares});
    }
    let allocation = json!({"devices": {"results": [result]}});
    node.claim(name, &format!("u-{name}"), allocation);
}

/// Prepares a claim; the error, if any.
async fn prepare(driver: &DraDriver, name: &str) -> String {
    let prepared = driver.prepare_one(["n", name, &format!("u-{name}")]).await;
    prepared.map_or_else(|error| error.to_string(), |_| String::new())
}

#[tokio::test]
async fn a_device_and_shares_of_it_are_not_prepared_beside_each_other() {
    let mut node = Node::new(NPUS, 1).await;
    claim(&node, "whole", "npu-0", WHOLE, false);
    claim(&node, "share", "npu-0", ONE, false);
    claim(&node, "named", "npu-0-share-0", WHOLE, false);
    claim(&node, "again", "npu-0-share-0", WHOLE, false);
    claim(&node, "admin", "npu-0", WHOLE, true);
    let driver = node.start().await;
    assert_eq!(prepare(&driver, "whole").await, "");
    replicas(&node, "replicas = 3\n");
    let driver = node.start().await;
    for name in ["share", "named"] {
        let error = prepare(&driver, name).await;
        let wanted = "device npu-0 of pool worker/npu is still prepared for the claim n/whole";
        assert!(error.contains(wanted), "{name}: {error}");
    }
    for name in ["whole", "admin"] {
        assert_eq!(prepare(&driver, name).await, "", "{name}");
    }
    parts::unprepare(&driver, "whole").await;
    for name in ["share", "named", "share", "named"] {
        assert_eq!(prepare(&driver, name).await, "", "{name}");
    }
    let error = prepare(&driver, "again").await;
    assert!(
        error.contains("still prepared for the claim n/named"),
        "{error}"
    );
    replicas(&node, "");
    let driver = node.start().await;
    let error = prepare(&driver, "whole").await;
    assert!(error.contains("still prepared for the claim n/"), "{error}");
    // What is prepared stays so, for a pod that starts again.
    assert_eq!(prepare(&driver, "share").await, "");
    // The kubelet forgot both, and they are gone: both are collected.
    for name in ["share", "named"] {
        node.server.delete(&crate::node::claim_path(name));
    }
    assert_eq!(prepare(&driver, "whole").await, "");
}

#[tokio::test]
async fn shares_are_counted_in_both_forms() {
    let mut node = Node::new(NPUS, 1).await;
    replicas(&node, "replicas = 2000\n");
    claim(&node, "many", "npu-0", Some("1k"), false);
    claim(&node, "rest", "npu-0", Some("999"), false);
    claim(&node, "named", "npu-0-share-7", WHOLE, false);
    claim(&node, "more", "npu-0", ONE, false);
    claim(&node, "other", "npu-0-share-8", WHOLE, false);
    claim(&node, "odd", "npu-0", Some("1e"), false);
    claim(&node, "admin", "npu-0", ONE, true);
    let driver = node.start().await;
    for name in ["many", "rest", "named"] {
        assert_eq!(prepare(&driver, name).await, "", "{name}");
    }
    for name in ["more", "other", "odd"] {
        let error = prepare(&driver, name).await;
        let wanted = "may be shared by 2000, and 2000 shares are prepared for claims (n/many, \
            n/named, n/rest)";
        assert!(error.contains(wanted), "{name}: {error}");
    }
    for name in ["many", "admin"] {
        assert_eq!(prepare(&driver, name).await, "", "{name}");
    }
    parts::unprepare(&driver, "named").await;
    assert_eq!(prepare(&driver, "more").await, "");
    // A record of a version that did not count is that of one share.
    let record = "kubelet/plugins/boathook.dev/claims/u-many.json";
    let text = std::fs::read_to_string(node.path(record)).unwrap();
    let mut old: Value = serde_json::from_str(&text).unwrap();
    let device = old["devices"][0].as_object_mut().unwrap();
    assert_eq!(device.remove("shares"), Some(json!(1000)));
    node.write(record, &old.to_string());
    assert_eq!(prepare(&driver, "other").await, "");
    // Fewer than were given away: no more are, and what is prepared stays so.
    replicas(&node, "replicas = 2\n");
    let driver = node.start().await;
    claim(&node, "late", "npu-0-share-1", WHOLE, false);
    let error = prepare(&driver, "late").await;
    assert!(error.contains("may be shared by 2, and"), "{error}");
    assert_eq!(prepare(&driver, "rest").await, "");
}

/// A part has another name where the class does not say how parts are made.
#[tokio::test]
async fn a_part_is_the_same_by_both_of_its_names() {
    let Some(mut node) = parts::node(1).await else {
        return;
    };
    let with_parts = parts::PARTS;
    let (without, _) = with_parts.split_once("[[parts]]").unwrap();
    let driver = node.start().await;
    parts::prepare(&node, &driver, "a", "npu-0-half-0")
        .await
        .unwrap();
    node.write("classes/npu.toml", without);
    let driver = node.start().await;
    let error = parts::prepare(&node, &driver, "b", "npu-0-10")
        .await
        .unwrap_err();
    assert!(
        error.contains("still prepared for the claim n/a"),
        "{error}"
    );
    parts::unprepare(&driver, "a").await;
    parts::prepare(&node, &driver, "b", "npu-0-10")
        .await
        .unwrap();
    node.write("classes/npu.toml", with_parts);
    let driver = node.start().await;
    for device in ["npu-0-half-0", "npu-0"] {
        let error = parts::prepare(&node, &driver, "c", device)
            .await
            .unwrap_err();
        assert!(
            error.contains("still prepared for the claim n/b"),
            "{device}: {error}"
        );
    }
    parts::prepare(&node, &driver, "d", "npu-0-half-2")
        .await
        .unwrap();
}

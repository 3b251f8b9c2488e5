//! Tests with devices that become shared, or are no longer shared, while claims are prepared.

use harness::kubelet::dra::DraDriver;
use serde_json::{Value, json};

use crate::node::{NPUS, Node, allocation, refused, result};
use crate::parts;

/// The number of shares in the `consumedCapacity` of an allocation result. The scheduler sets
/// none if it allocates a whole device, or a share that is published as a device.
const WHOLE: Option<&str> = None;
const ONE: Option<&str> = Some("1");

fn replicas(node: &Node, more: &str) {
    node.configure(&format!("[class.npu]\nserve = 'dra'\n{more}"));
}

fn claim(node: &Node, name: &str, device: &str, shares: Option<&str>, admin: bool) {
    let mut result = result("r", "npu", device);
    result["adminAccess"] = admin.into();
    if let Some(shares) = shares {
        result["shareID"] = format!("share-of-{name}").into();
        result["consumedCapacity"] = json!({"shares": shares});
    }
    node.claim(name, &format!("u-{name}"), allocation([result]));
}

async fn prepare(driver: &DraDriver, name: &str) -> Result<(), String> {
    let prepared = driver.prepare_one(["n", name, &format!("u-{name}")]).await;
    prepared.map(drop).map_err(|error| error.to_string())
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
    prepare(&driver, "whole").await.unwrap();
    replicas(&node, "replicas = 3\n");
    let driver = node.start().await;
    for name in ["share", "named"] {
        let wanted = "device npu-0 of pool worker/npu is still prepared for the claim n/whole";
        refused(prepare(&driver, name), wanted).await;
    }
    for name in ["whole", "admin"] {
        prepare(&driver, name).await.unwrap();
    }
    parts::unprepare(&driver, "whole").await;
    for name in ["share", "named", "share", "named"] {
        prepare(&driver, name).await.unwrap();
    }
    let wanted = "still prepared for the claim n/named";
    refused(prepare(&driver, "again"), wanted).await;
    replicas(&node, "");
    let driver = node.start().await;
    let wanted = "still prepared for the claim n/";
    refused(prepare(&driver, "whole"), wanted).await;
    // Prepared claims stay prepared, so that their pods can start again.
    prepare(&driver, "share").await.unwrap();
    // Both claims are deleted and were never unprepared. The driver removes both.
    for name in ["share", "named"] {
        node.server.delete(&crate::node::claim_path(name));
    }
    prepare(&driver, "whole").await.unwrap();
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
        prepare(&driver, name).await.unwrap();
    }
    for name in ["more", "other", "odd"] {
        let wanted = "may be shared by 2000, and 2000 shares are prepared for claims (n/many, \
            n/named, n/rest)";
        refused(prepare(&driver, name), wanted).await;
    }
    for name in ["many", "admin"] {
        prepare(&driver, name).await.unwrap();
    }
    parts::unprepare(&driver, "named").await;
    prepare(&driver, "more").await.unwrap();
    // A claim record of an earlier version has no number of shares. It counts as one share.
    let record = "kubelet/plugins/boathook.dev/claims/u-many.json";
    let text = std::fs::read_to_string(node.path(record)).unwrap();
    let mut old: Value = serde_json::from_str(&text).unwrap();
    let device = old["devices"][0].as_object_mut().unwrap();
    assert_eq!(device.remove("shares"), Some(json!(1000)));
    node.write(record, &old.to_string());
    prepare(&driver, "other").await.unwrap();
    // The configuration now allows fewer shares than are prepared. No more shares are
    // prepared, and prepared claims stay so.
    replicas(&node, "replicas = 2\n");
    let driver = node.start().await;
    claim(&node, "late", "npu-0-share-1", WHOLE, false);
    refused(prepare(&driver, "late"), "may be shared by 2, and").await;
    prepare(&driver, "rest").await.unwrap();
}

/// A part has another name if the class does not describe how parts are made. Both names are
/// the same device.
#[tokio::test]
async fn a_part_is_the_same_by_both_of_its_names() {
    let Some(mut node) = parts::node(1).await else {
        return;
    };
    let with_parts = parts::PARTS;
    let (without, _) = with_parts.split_once("[[parts]]").unwrap();
    let driver = node.start().await;
    parts::given(&node, &driver, "a", "npu-0-half-0", "NPU.0.10").await;
    node.write("classes/npu.toml", without);
    let driver = node.start().await;
    let wanted = "still prepared for the claim n/a";
    refused(parts::prepare(&node, &driver, "b", "npu-0-10"), wanted).await;
    parts::unprepare(&driver, "a").await;
    parts::given(&node, &driver, "b", "npu-0-10", "NPU.0.10").await;
    node.write("classes/npu.toml", with_parts);
    let driver = node.start().await;
    for device in ["npu-0-half-0", "npu-0"] {
        let wanted = "still prepared for the claim n/b";
        refused(parts::prepare(&node, &driver, "c", device), wanted).await;
    }
    parts::given(&node, &driver, "d", "npu-0-half-2", "NPU.0.12").await;
}

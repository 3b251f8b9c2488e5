//! Devices that containers still have through the device plugin, after their class was moved to
//! claims.

use crate::node::{NPUS, Node, refused};

const A: [&str; 3] = ["n", "a", "u-1"];
const RESOURCE: &str = "dummy.com/npu";
const HELD: &str = "a container still has device npu-0 of pool worker/npu by the device plugin";

/// The taint does not stop a claim that tolerates it, so the driver refuses the claim.
#[tokio::test]
async fn a_claim_does_not_get_a_device_that_a_container_has() {
    let mut node = Node::new(NPUS, 2).await;
    let driver = node.start().await;
    node.wait_count(2).await;
    // The kubelet gives the device away after the last scan.
    node.by_plugin(RESOURCE, &["NPU.0"]);
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    refused(driver.prepare_one(A), HELD).await;
    assert_eq!(
        node.names("kubelet/plugins/boathook.dev/claims"),
        [""; 0],
        "a refused claim has no record"
    );
    node.by_plugin(RESOURCE, &["NPU.1"]);
    driver.prepare_one(A).await.unwrap();
    // The containers of the claim's pod can be restarted, whatever the kubelet says later.
    node.by_plugin(RESOURCE, &["NPU.0"]);
    driver.prepare_one(A).await.unwrap();
}

/// Since the allocation the number of replicas has changed, or the resource, or the class.
#[tokio::test]
async fn a_device_is_found_under_the_id_that_it_had() {
    let shared = format!("{NPUS}[sharing]\nreplicas = 2\n");
    let unique = NPUS.replace("'NPU.{index}'", "'0000:3b:00.{index}'");
    let (id, name) = ("0000:3b:00.0", "0000-3b-00-0");
    for (class, resource, allocated_id, device, is_held) in [
        (NPUS, RESOURCE, "NPU.0::3", "npu-0", true),
        (&*shared, RESOURCE, "NPU.0", "npu-0", true),
        (&shared, RESOURCE, "NPU.0::7", "npu-0", true),
        (NPUS, RESOURCE, "NPU.00", "npu-0", false),
        (NPUS, RESOURCE, "NPU.0::x", "npu-0", false),
        // A short id can belong to the device of another vendor.
        (NPUS, "other.com/npu", "NPU.0", "npu-0", false),
        (&unique, "other.com/npu", id, name, true),
        (&unique, "other.com/npu", "0000:3b:00.0::1", name, true),
    ] {
        let mut node = Node::new(class, 1).await;
        node.by_plugin(resource, &[allocated_id]);
        node.allocate("a", "u-1", &[("r", device)]);
        let driver = node.start().await;
        node.wait_count(1).await;
        let has_taint = node.devices()[0].get("taints").is_some();
        let prepared = driver.prepare_one(A).await.map_err(text);
        let case = format!("{allocated_id} of {resource}");
        assert_eq!((has_taint, prepared.is_err()), (is_held, is_held), "{case}");
        if let Err(error) = prepared {
            assert!(error.contains("a container still has device"), "{error}");
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

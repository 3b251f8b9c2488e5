//! Tests with programs that fail, hang, or do not belong to root, and with profiles and claim
//! records that are gone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::node::{self, CHECKPOINT, refused, wait};
use crate::parts::{self, PARTS, calls, list_made_parts, mode, name, prepare, unprepare};

#[tokio::test]
async fn a_program_that_fails_is_an_error_of_its_claim_and_leaves_nothing() {
    let Some(mut node) = parts::node(2).await else {
        return;
    };
    let driver = node.start().await;
    for (fault, wanted) in [
        (
            "before",
            "the part npu-0-half-0 cannot be made: `/opt/busybox sh /opt/carve make 0 10 half` failed (exit status: 3), and printed: no engine",
        ),
        ("hostile", r"printed: \u{1b}[2Jred"),
        ("half", "failed (exit status: 5), and printed: nothing"),
        ("hang", "took longer than 3 s and was killed"),
        (
            "lie",
            "each step succeeded, but the devices are as before (`found` in [[parts]]",
        ),
    ] {
        mode(&node, fault);
        let prepared = prepare(&node, &driver, "a", "npu-0-half-0").await;
        let error = prepared.unwrap_err();
        assert!(error.contains(wanted), "{fault}: {error}");
        assert!(error.len() < 500 && !error.contains('\u{1b}'), "{error}");
        // No part is left, also if the program was killed.
        assert!(
            list_made_parts(&node, 0).is_empty(),
            "{fault}: {:?}",
            list_made_parts(&node, 0)
        );
        mode(&node, "well");
        prepare(&node, &driver, "b", "npu-1").await.unwrap();
        prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
        for claim in ["a", "b"] {
            unprepare(&driver, claim).await;
        }
        fs::remove_dir_all(node.path("host/sys/npu/npu0/part10")).unwrap();
    }
    // The result depends on the part that exists, not on the exit status of the program.
    mode(&node, "after");
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    unprepare(&driver, "a").await;
    mode(&node, "stuck");
    let wanted = "the part npu-0-half-0, which no claim has, is in the way and cannot be removed";
    refused(prepare(&node, &driver, "b", "npu-0"), wanted).await;
    assert_eq!(list_made_parts(&node, 0), ["part10"]);
}

/// A claim of another class does not wait while the program of the first class hangs.
#[tokio::test]
async fn a_program_that_hangs_delays_no_other_class() {
    let Some(mut node) = parts::node(1).await else {
        return;
    };
    node.add_others();
    let driver = node.start().await;
    mode(&node, "hang");
    node.allocate("a", "u-a", &[("r", "npu-0-half-0")]);
    let is_first = async {
        wait("the program runs", || node.path("host/opt/log").exists()).await;
        node.prepare(&driver, "other", "other-0").await.unwrap();
        node::unprepare(&driver, "other-0").await;
    };
    tokio::select! {
        biased;
        prepared = driver.prepare_one(["n", "a", "u-a"]) => panic!("{prepared:?}"),
        () = is_first => {}
    }
}

#[tokio::test]
async fn a_claim_without_its_profile_is_told_so_and_ends() {
    let Some(mut node) = parts::node(1).await else {
        return;
    };
    let driver = node.start().await;
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    let (b, quarter) = ("b", "npu-0-quarter-2");
    prepare(&node, &driver, b, quarter).await.unwrap();
    let (others, _) = PARTS.split_once("[[parts]]\nprofile = 'quarter'").unwrap();
    node.write("classes/npu.toml", others);
    // The class does not know the profile of an existing part. No other part is made beside
    // it.
    node.wait_devices("the parts that are there", |devices| {
        let names: Vec<&str> = devices.iter().map(name).collect();
        names == ["npu-0-10", "npu-0-12"]
    })
    .await;
    let wanted = "pool worker/npu has no device npu-0-quarter-2 now; if that is a part, put its \
                  profile back into [[parts]] of the class, or delete the pod";
    refused(prepare(&node, &driver, b, quarter), wanted).await;
    unprepare(&driver, b).await;
    fs::remove_dir_all(node.path("host/sys/npu/npu0/part12")).unwrap();
    node.wait_count(3).await;
    parts::given(&node, &driver, "a", "npu-0-half-0", "NPU.0.10").await;
}

#[tokio::test]
async fn a_program_that_others_can_change_is_not_run() {
    let Some(mut node) = parts::node(1).await else {
        return;
    };
    let driver = node.start().await;
    node.wait_count(7).await;
    let program = node.path("host/opt/busybox");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
    refused(prepare(&node, &driver, "a", "npu-0-half-0"), " no ").await;
    node.wait_count(1).await;
    prepare(&node, &driver, "b", "npu-0").await.unwrap();
    assert_eq!(calls(&node), [""; 0]);
}

/// Only the claim record shows that a part is in use. If it cannot be read, no part is
/// removed.
#[tokio::test]
async fn a_part_whose_claim_cannot_be_read_is_not_removed() {
    let Some(mut node) = parts::node(1).await else {
        return;
    };
    let driver = node.start().await;
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    let record = "kubelet/plugins/boathook.dev/claims/u-a.json";
    node.write(record, "{");
    let wanted = "the claim u-a may have it, whose record cannot be read";
    refused(prepare(&node, &driver, "b", "npu-0"), wanted).await;
    assert_eq!(list_made_parts(&node, 0), ["part10"]);
}

/// A container may still have a part from the device plugin after the configuration has moved
/// the class to the DRA driver.
#[tokio::test]
async fn a_part_that_a_container_has_by_the_plugin_is_not_removed() {
    let Some(mut node) = parts::node(1).await else {
        return;
    };
    let driver = node.start().await;
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    unprepare(&driver, "a").await;
    node.by_plugin("dummy.com/half", &["NPU.0.10"]);
    let wanted = "a container still has it by the device plugin";
    refused(prepare(&node, &driver, "b", "npu-0"), wanted).await;
    node.write(CHECKPOINT, "{");
    let wanted = "kubelet_internal_checkpoint: it has an unknown format";
    refused(prepare(&node, &driver, "b", "npu-0"), wanted).await;
    assert_eq!(list_made_parts(&node, 0), ["part10"]);
    node.by_plugin("dummy.com/half", &[]);
    prepare(&node, &driver, "b", "npu-0").await.unwrap();
}

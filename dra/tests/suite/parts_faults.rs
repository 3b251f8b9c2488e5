//! Programs that fail, hang, or are not root's; profiles and records that are gone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::node::wait;
use crate::parts::{PARTS, calls, made, mode, name, node, prepare, unprepare};

#[tokio::test]
async fn a_program_that_fails_is_an_error_of_its_claim_and_leaves_nothing() {
    let Some(mut node) = node(2).await else {
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
        let error = prepare(&node, &driver, "a", "npu-0-half-0")
            .await
            .unwrap_err();
        assert!(error.contains(wanted), "{fault}: {error}");
        assert!(error.len() < 500 && !error.contains('\u{1b}'), "{error}");
        // Killed too, it leaves what it finds at the next try.
        assert!(made(&node, 0).is_empty(), "{fault}: {:?}", made(&node, 0));
        mode(&node, "well");
        prepare(&node, &driver, "b", "npu-1").await.unwrap();
        prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
        for claim in ["a", "b"] {
            unprepare(&driver, claim).await;
        }
        fs::remove_dir_all(node.path("host/sys/npu/npu0/part10")).unwrap();
    }
    // What counts is the device that is there.
    mode(&node, "after");
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    unprepare(&driver, "a").await;
    mode(&node, "stuck");
    let error = prepare(&node, &driver, "b", "npu-0").await.unwrap_err();
    let wanted = "the part npu-0-half-0, which no claim has, is in the way and cannot be removed";
    assert!(error.contains(wanted), "{error}");
    assert_eq!(made(&node, 0), ["part10"]);
}

/// As long as its program hangs, a claim of another class does not wait.
#[tokio::test]
async fn a_program_that_hangs_delays_no_other_class() {
    let Some(mut node) = node(1).await else {
        return;
    };
    let other = "version = 1\nresource = 'dummy.com/other'\nrequest = { env = 'OTHERS' }\n\
        discover = [{ count = 1 }]\n[device]\nid = 'other-{index}'\n";
    node.write("classes/other.toml", other);
    node.configure("[class.npu]\nserve = 'dra'\n[class.other]\nserve = 'dra'\n");
    let driver = node.start().await;
    mode(&node, "hang");
    node.allocate("a", "u-a", &[("r", "npu-0-half-0")]);
    let result = json!({"request": "r", "driver": "boathook.dev", "pool": "worker/other",
        "device": "other-0"});
    node.claim("b", "u-b", json!({"devices": {"results": [result]}}));
    let (a, b) = (["n", "a", "u-a"], ["n", "b", "u-b"]);
    let is_first = async {
        wait("the program runs", || node.path("host/opt/log").exists()).await;
        driver.prepare_one(b).await.unwrap();
        driver.unprepare(b).await.unwrap();
    };
    tokio::select! {
        biased;
        prepared = driver.prepare_one(a) => panic!("{prepared:?}"),
        () = is_first => {}
    }
}

#[tokio::test]
async fn a_claim_without_its_profile_is_told_so_and_ends() {
    let Some(mut node) = node(1).await else {
        return;
    };
    let driver = node.start().await;
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    prepare(&node, &driver, "b", "npu-0-quarter-2")
        .await
        .unwrap();
    let (others, _) = PARTS.split_once("[[parts]]\nprofile = 'quarter'").unwrap();
    node.write("classes/npu.toml", others);
    // A part of which the class knows nothing: no other one is made beside it.
    node.wait_devices("the parts that are there", |devices| {
        let names: Vec<&str> = devices.iter().map(name).collect();
        names == ["npu-0-10", "npu-0-12"]
    })
    .await;
    let error = prepare(&node, &driver, "b", "npu-0-quarter-2")
        .await
        .unwrap_err();
    let wanted = "pool worker/npu has no device npu-0-quarter-2 now; if that is a part, put its \
                  profile back into [[parts]] of the class, or delete the pod";
    assert!(error.contains(wanted), "{error}");
    unprepare(&driver, "b").await;
    fs::remove_dir_all(node.path("host/sys/npu/npu0/part12")).unwrap();
    node.wait_devices("a device and two halves", |devices| devices.len() == 3)
        .await;
    assert_eq!(
        prepare(&node, &driver, "a", "npu-0-half-0")
            .await
            .as_deref(),
        Ok("NPU.0.10")
    );
}

#[tokio::test]
async fn a_program_that_others_can_change_is_not_run() {
    let Some(mut node) = node(1).await else {
        return;
    };
    let driver = node.start().await;
    node.wait_devices("parts", |devices| devices.len() == 7)
        .await;
    let program = node.path("host/opt/busybox");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
    let error = prepare(&node, &driver, "a", "npu-0-half-0")
        .await
        .unwrap_err();
    assert!(error.contains(" no "), "{error}");
    node.wait_devices("no parts", |devices| devices.len() == 1)
        .await;
    prepare(&node, &driver, "b", "npu-0").await.unwrap();
    assert_eq!(calls(&node), [""; 0]);
}

/// The record that a claim has of its part is what keeps others from removing it.
#[tokio::test]
async fn a_part_whose_claim_cannot_be_read_is_not_removed() {
    let Some(mut node) = node(1).await else {
        return;
    };
    let driver = node.start().await;
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    let record = "kubelet/plugins/boathook.dev/claims/u-a.json";
    node.write(record, "{");
    let error = prepare(&node, &driver, "b", "npu-0").await.unwrap_err();
    assert!(
        error.contains("the claim u-a may have it, whose record cannot be read"),
        "{error}"
    );
    assert_eq!(made(&node, 0), ["part10"]);
}

/// As after a move of the class from the plugin.
#[tokio::test]
async fn a_part_that_a_container_has_by_the_plugin_is_not_removed() {
    let Some(mut node) = node(1).await else {
        return;
    };
    let driver = node.start().await;
    prepare(&node, &driver, "a", "npu-0-half-0").await.unwrap();
    unprepare(&driver, "a").await;
    fs::create_dir_all(node.path("kubelet/device-plugins")).unwrap();
    let record = "kubelet/device-plugins/kubelet_internal_checkpoint";
    let entries =
        |entries: Value| json!({"Data": {"PodDeviceEntries": entries}, "Checksum": 1}).to_string();
    let entry = json!([{"PodUID": "p", "ContainerName": "c", "ResourceName": "dummy.com/half",
        "DeviceIDs": {"-1": ["NPU.0.10"]}}]);
    for (text, wanted) in [
        (
            entries(entry).as_str(),
            "a container still has it by the device plugin",
        ),
        ("{", "kubelet_internal_checkpoint: it has an unknown format"),
    ] {
        node.write(record, text);
        let error = prepare(&node, &driver, "b", "npu-0").await.unwrap_err();
        assert!(error.contains(wanted), "{error}");
        assert_eq!(made(&node, 0), ["part10"]);
    }
    node.write(record, &entries(json!([])));
    prepare(&node, &driver, "b", "npu-0").await.unwrap();
}

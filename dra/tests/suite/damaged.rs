//! Tests with something else in the place of the driver's own files, such as a directory or a
//! pipe. Only one claim is affected, and the driver does not wait.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

use harness::damage::{self, Damage};

use crate::node::{CHECKPOINT, NPUS, Node, refused, wait};

const CLAIMS: &str = "kubelet/plugins/boathook.dev/claims";
const A: [&str; 3] = ["n", "a", "u-1"];
const B: [&str; 3] = ["n", "b", "u-2"];

/// Damages the record of one claim. Another claim is prepared as before.
#[tokio::test]
async fn a_damaged_record_concerns_its_claim_alone() {
    for damage in Damage::kinds() {
        let mut node = Node::new(NPUS, 2).await;
        node.allocate("a", "u-1", &[("r", "npu-0")]);
        node.allocate("b", "u-2", &[("r", "npu-1")]);
        let driver = node.start_with_log().await;
        node.wait_count(2).await;
        driver.prepare_one(A).await.unwrap();
        node.kill();
        let record = node.path(&format!("{CLAIMS}/u-1.json"));
        damage.put(&record).unwrap();
        // A symbolic link in the place of a temporary file. An earlier version of the driver
        // followed it and wrote to its target.
        let victim = node.path("victim");
        fs::write(&victim, "kept").unwrap();
        symlink(&victim, node.path(&format!("{CLAIMS}/u-1.tmp"))).unwrap();
        let driver = node.start_with_log().await;
        node.wait_count(2).await;
        let start = Instant::now();
        driver.prepare_one(B).await.unwrap();
        let log = || fs::read_to_string(node.path("log")).unwrap();
        wait("the record is reported", || {
            log().contains("the record of claim u-1: ")
        })
        .await;
        // The kubelet prepares the claim again although it is in use.
        let prepared = driver
            .prepare_one(A)
            .await
            .map_err(|error| error.to_string());
        match damage {
            Damage::Directory => {
                let error = prepared.unwrap_err();
                assert!(error.contains("claims/u-1.json: "), "{error}");
            }
            _ => {
                prepared.unwrap();
                assert!(
                    fs::symlink_metadata(&record).unwrap().is_file(),
                    "{damage:?}"
                );
                assert_eq!(
                    node.names(CLAIMS).len(),
                    2 + usize::from(damage == Damage::Link)
                );
            }
        }
        assert!(damage.spares_victim(&record), "{damage:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        driver.unprepare(B).await.unwrap();
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
    }
}

/// The pod of a claim ends, and the record says no longer which parts were made by half for it.
#[tokio::test]
async fn a_damaged_record_is_not_removed_silently() {
    for damage in Damage::kinds() {
        let mut node = Node::new(NPUS, 1).await;
        node.allocate("a", "u-1", &[("r", "npu-0")]);
        let driver = node.start_with_log().await;
        node.wait_count(1).await;
        driver.prepare_one(A).await.unwrap();
        let record = node.path(&format!("{CLAIMS}/u-1.json"));
        damage.put(&record).unwrap();
        let start = Instant::now();
        let unprepared = driver.unprepare(A).await;
        assert_eq!(
            unprepared.is_err(),
            damage == Damage::Directory,
            "{damage:?}: {unprepared:?}"
        );
        let log = || fs::read_to_string(node.path("log")).unwrap();
        let text = "cannot read the record of claim u-1, which is removed: ";
        wait("the record is reported", || log().contains(text)).await;
        assert!(damage.spares_victim(&record), "{damage:?}");
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
    }
}

/// The driver writes a damaged specification again. If a directory is in its place, the error
/// names it.
#[tokio::test]
async fn a_damaged_specification_is_replaced() {
    for damage in Damage::kinds() {
        let mut node = Node::new(NPUS, 2).await;
        node.allocate("a", "u-1", &[("r", "npu-0")]);
        node.allocate("b", "u-2", &[("r", "npu-1")]);
        let driver = node.start().await;
        node.wait_count(2).await;
        driver.prepare_one(A).await.unwrap();
        let file = node.path("cdi/boathook.dev-claim-u-1.json");
        damage.put(&file).unwrap();
        let start = Instant::now();
        let prepared = driver
            .prepare_one(A)
            .await
            .map_err(|error| error.to_string());
        match damage {
            Damage::Directory => {
                let error = prepared.unwrap_err();
                assert!(error.contains(&*file.to_string_lossy()), "{error}");
            }
            _ => {
                prepared.unwrap();
                assert_eq!(node.specified("u-1").len(), 1, "{damage:?}");
            }
        }
        assert!(damage.spares_victim(&file), "{damage:?}");
        driver.prepare_one(B).await.unwrap();
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
    }
}

/// The error names a damaged lock file. The driver does not wait for it as if another process
/// held the lock.
#[tokio::test]
async fn a_damaged_lock_is_named() {
    for damage in Damage::kinds() {
        let mut node = Node::new(NPUS, 1).await;
        node.allocate("a", "u-1", &[("r", "npu-0")]);
        let driver = node.start().await;
        node.wait_count(1).await;
        let lock = node.path("kubelet/plugins/boathook.dev/serialize.lock");
        damage.put(&lock).unwrap();
        let start = Instant::now();
        if damage == Damage::Overlong {
            driver.prepare_one(A).await.unwrap();
        } else {
            refused(driver.prepare_one(A), "serialize.lock: it").await;
        }
        assert!(damage.spares_victim(&lock), "{damage:?}");
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
    }
}

/// The kubelet owns its checkpoint, so the driver only reports that it is damaged.
#[tokio::test]
async fn a_damaged_checkpoint_is_not_waited_for() {
    for damage in Damage::kinds() {
        let mut node = Node::new(NPUS, 1).await;
        node.by_plugin("dummy.com/other", &["x"]);
        damage.put(&node.path(CHECKPOINT)).unwrap();
        let start = Instant::now();
        node.allocate("a", "u-1", &[("r", "npu-0")]);
        let driver = node.start_with_log().await;
        node.wait_count(1).await;
        driver.prepare_one(A).await.unwrap();
        assert!(start.elapsed() < damage::LIMIT, "{damage:?}");
        if [Damage::Pipe, Damage::Socket, Damage::Directory].contains(&damage) {
            let log = || fs::read_to_string(node.path("log")).unwrap();
            let name = "kubelet_internal_checkpoint";
            wait("it is reported", || log().contains(name)).await;
        }
    }
}

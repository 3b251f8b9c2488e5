//! Starting, updating and ending.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::node::{NPUS, Node, wait};

/// The new instance serves before the old one ends, which removes its own sockets and
/// nothing else.
#[tokio::test]
async fn an_update_leaves_no_gap() {
    let mut node = Node::new(NPUS, 1).await;
    let old = node.start().await;
    node.allocate("a", "u-1", &[("r", "npu-0")]);
    let claim = ["n", "a", "u-1"];
    let devices = old.prepare_one(claim).await.unwrap();
    node.wait_devices("one device", |devices| devices.len() == 1)
        .await;
    let mut process = node.replaced().unwrap();
    let new = node.registered().await;
    // Either may be called.
    assert_eq!(new.prepare_one(claim).await.unwrap(), devices);
    assert_eq!(old.prepare_one(claim).await.unwrap(), devices);
    kill(
        Pid::from_raw(process.id().try_into().unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert!(process.wait().unwrap().success());
    assert_eq!(node.names("kubelet/plugins_registry").len(), 1);
    assert_eq!(node.slices().len(), 1);
    new.unprepare(claim).await.unwrap();
    assert_eq!(node.server.writes(), 1);
}

#[tokio::test]
async fn sockets_that_are_removed_are_made_again() {
    let mut node = Node::new(NPUS, 1).await;
    node.start().await;
    let registry = node.path("kubelet/plugins_registry");
    let socket = node.names("kubelet/plugins_registry").remove(0);
    std::fs::remove_file(registry.join(socket)).unwrap();
    wait("a socket", || {
        !node.names("kubelet/plugins_registry").is_empty()
    })
    .await;
    node.registered().await;
}

/// A class is served by the plugin or here.
#[tokio::test]
async fn a_class_is_served_here_only_if_the_configuration_says_so() {
    let mut node = Node::new(NPUS, 1).await;
    node.configure("");
    node.start().await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(node.server.writes(), 0);
}

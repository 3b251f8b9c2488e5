//! Mistakes in own classes, classes that go, and files that are removed.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;

use super::device_plugin::VENDORS;
use super::{NULL, NULL_FILE, install, install_first, install_with, read_metrics};
use crate::real_kubernetes::node::{NAME, Node};
use crate::real_kubernetes::overlay::Overlay;
use crate::real_kubernetes::pod::Pod;

/// The other classes go on, and the class comes back when it is mended.
pub(super) fn broken_class(node: &Node) -> Result<()> {
    let start = Instant::now();
    install(node, &[("null.toml", NULL), ("broken.toml", "version = [")])?;
    node.until("the class is counted", || {
        Ok(read_metrics(node)?.contains("boathook_class_errors 1\n"))
    })?;
    println!("counted {:.1?} after the change", start.elapsed());
    Pod::new(Overlay::Cdi, "beside-a-broken-class", 1)
        .run(node)?
        .number(1)?;
    until_message(node, "class left out: ")?;
    install_first(node)
}

/// An empty file disables the class of its name, and is no mistake.
pub(super) fn empty_class(node: &Node) -> Result<()> {
    let start = Instant::now();
    install(node, &[("null.toml", ""), ("sound.toml", "")])?;
    node.until("the class of that name is gone", || {
        let path = "jsonpath={.status.allocatable.example\\.com/null}";
        let left = node.kubectl(&["get", "node", NAME, "-o", path])?;
        Ok(left.is_empty() || left == "0")
    })?;
    println!("gone {:.1?} after the change", start.elapsed());
    Pod::new(Overlay::Cdi, "beside-an-empty-class", 1)
        .run(node)?
        .number(1)?;
    let page = read_metrics(node)?;
    ensure!(page.contains("boathook_class_errors 0\n"), "{page}");
    install_first(node)
}

/// The node keeps the configuration that it has, and with it its devices.
pub(super) fn broken_configuration(node: &Node) -> Result<()> {
    let classes = [("null.toml", NULL)];
    let start = Instant::now();
    install_with(node, &classes, "[class.dummy-npu]\nenabeld = true\n")?;
    until_message(node, "unknown key `enabeld`")?;
    println!("reported {:.1?} after the change", start.elapsed());
    Pod::new(Overlay::Cdi, "beside-a-broken-configuration", 1)
        .run(node)?
        .number(1)?;
    install_first(node)
}

/// The first class serves the resource, and the error of the second is one line.
pub(super) fn shared_resource(node: &Node) -> Result<()> {
    let twin = NULL.replace("'null'", "'twin'").replace("NULL", "TWIN");
    let start = Instant::now();
    install(node, &[("null.toml", NULL), ("twin.toml", &twin)])?;
    node.until("the class is counted", || {
        Ok(read_metrics(node)?.contains("boathook_class_errors 1\n"))
    })?;
    println!("counted {:.1?} after the change", start.elapsed());
    let set = "daemonset/boathook";
    let log = node.kubectl(&["--namespace=boathook-system", "logs", set])?;
    let errors = log
        .lines()
        .filter(|line| line.contains("both use example.com/null"));
    ensure!(errors.count() == 1, "{log}");
    let path = "jsonpath={.status.allocatable.example\\.com/null}";
    let devices = node.kubectl(&["get", "node", NAME, "-o", path])?;
    ensure!(devices == "1", "{devices} devices");
    install_first(node)
}

/// Waits until the message of the init container that installs contains this text. For a moment the
/// pod of before the update is there as well.
fn until_message(node: &Node, text: &str) -> Result<()> {
    let path = "jsonpath={.items[*].status.initContainerStatuses[0].state.terminated.message}";
    node.until(&format!("the pod's status contains {text}"), || {
        let messages = node.kubectl(&["--namespace=boathook-system", "get", "pods", "-o", path])?;
        Ok(messages.contains(text))
    })
}

pub(super) fn removed_cdi_directory(node: &Node) -> Result<()> {
    let start = Instant::now();
    node.shell("rm -r /run/cdi")?;
    node.until("the files are there again", || {
        Ok(node.shell("ls /run/cdi/boathook-*").is_ok())
    })?;
    let written = start.elapsed();
    node.until_devices()?;
    let allocatable = start.elapsed();
    println!("files after {written:.1?}, all devices after {allocatable:.1?}");
    Pod::new(Overlay::Cdi, "after-removal", 1)
        .run(node)?
        .number(1)
}

/// Starts the pod `keeps` with the device of the class `null`. Its container fails if it lacks the
/// node, and is started again whenever it ends.
fn start_pod_with_null(node: &Node) -> Result<()> {
    let script = "test -c /dev/own-null || exit 3; trap 'exit 1' TERM; sleep 100000 & wait";
    let pod = Pod::new(Overlay::Cdi, "keeps", 0)
        .with("/spec/containers/0/command/2", script)
        .with(
            "/spec/containers/0/resources/limits",
            json!({"example.com/null": 1}),
        )
        .specified("restartPolicy", "Always");
    let pod = pod.text();
    node.apply(&pod)?;
    node.until("the pod runs", || {
        let phase = node.phase("keeps")?;
        // The kubelet refuses the pod if the plugin is being started again.
        if phase == "Failed" {
            node.delete_pods(&["keeps"])?;
            node.apply(&pod)?;
        }
        Ok(phase == "Running")
    })
}

/// Deletes the pod `keeps`, and waits until the file of its class is gone.
fn delete_pod_with_null(node: &Node) -> Result<()> {
    node.delete_pods(&["keeps"])?;
    let start = Instant::now();
    node.until("the file of the class is gone", || {
        Ok(node.shell(&format!("! test -e {NULL_FILE}")).is_ok())
    })?;
    println!("the file is gone {:.1?} after the pod", start.elapsed());
    install_first(node)
}

/// The container is refused by the hook, which names the class, and not by the engine.
pub(super) fn removed_class(node: &Node) -> Result<()> {
    start_pod_with_null(node)?;
    install(node, &[])?;
    node.shell(&format!("test -e {NULL_FILE}"))?;
    node.kubectl(&["exec", "keeps", "--", "kill", "1"])?;
    node.until("the hook refuses the container", || {
        Ok(node.described("keeps")?.contains("bring the class back"))
    })?;
    delete_pod_with_null(node)
}

/// The container is started again with its device, which no new pod gets.
pub(super) fn disabled_class_in_use(node: &Node) -> Result<()> {
    start_pod_with_null(node)?;
    install_with(node, &[("null.toml", NULL)], NULL_DISABLED)?;
    node.until("the plugin has withdrawn the resource", || {
        let left = VENDORS.count_devices(node)?;
        Ok(left.is_empty() || left == "0")
    })?;
    node.shell(&format!("test -e {NULL_FILE}"))?;
    node.kubectl(&["exec", "keeps", "--", "kill", "1"])?;
    node.until("the container runs again", || {
        let state = "jsonpath={.status.containerStatuses[0].restartCount} \
                     {.status.containerStatuses[0].ready}";
        let state = node.kubectl(&["get", "pod", "keeps", "-o", state])?;
        ensure!(!node.described("keeps")?.contains("RunContainerError"));
        Ok(state == "1 true")
    })?;
    node.kubectl(&["exec", "keeps", "--", "sh", "-c", ": >/dev/own-null"])?;
    delete_pod_with_null(node)
}

/// A configuration in which the class `null` is disabled.
const NULL_DISABLED: &str = "[class.dummy-npu]\nenabled = true\n[class.null]\nenabled = false\n";

/// The file of a vendor for the devices that our file described. An engine refuses a device that two
/// files describe.
const VENDORS_FILE: &str = r#"{
    "cdiVersion": "0.5.0", "kind": "example.com.pods.boathook.dev/null",
    "devices": [{"name": "null", "containerEdits": {
        "deviceNodes": [{"path": "/dev/vendors-null", "hostPath": "/dev/null"}]
    }}]
}"#;

pub(super) fn disabled_class(node: &Node) -> Result<()> {
    let start = Instant::now();
    install_with(node, &[("null.toml", NULL)], NULL_DISABLED)?;
    node.until("the file of the class is gone", || {
        Ok(node.shell(&format!("! test -e {NULL_FILE}")).is_ok())
    })?;
    node.until("the plugin has withdrawn the resource", || {
        let left = VENDORS.count_devices(node)?;
        Ok(left.is_empty() || left == "0")
    })?;
    println!("withdrawn {:.1?} after the change", start.elapsed());
    let file = "/run/cdi/vendor.json";
    node.write(file, VENDORS_FILE)?;
    VENDORS.start(node, "1", Some("example.com.pods.boathook.dev/null=null"))?;
    let pod = Pod::new(Overlay::Cdi, "by-the-vendor", 0)
        .with(
            "/spec/containers/0/command/2",
            "test -c /dev/vendors-null && ! test -e /dev/own-null && echo variable",
        )
        .with(
            "/spec/containers/0/resources/limits",
            json!({"example.com/null": 1}),
        );
    pod.run(node)?;
    VENDORS.delete(node)?;
    node.shell(&format!("rm {file}"))?;
    install_first(node)?;
    node.until("Boathook serves the resource again", || {
        Ok(VENDORS.count_devices(node)? == "1"
            && node.shell(&format!("test -e {NULL_FILE}")).is_ok())
    })
}

//! Devices of pods that run: `boathook attach` on the node, and `boathook follow` as a
//! DaemonSet, as docs/running-containers.md has it.

use std::fs;

use anyhow::{Context, Result, ensure};
use harness::binaries;
use serde_json::json;

use super::ClusterCase;
use super::node::Node;
use super::overlay::{Overlay, relative};
use super::pod::{Pod, REPORT};

/// In the order of the table.
pub(super) const CASES: &[ClusterCase] = &[
    ("installation, with the component follow", install),
    (
        "a device that a pod has comes back with other numbers",
        followed,
    ),
    (
        "the same while boathook follow is killed",
        followed_after_kill,
    ),
    ("attach and detach by hand", attached),
];

/// A class whose device is what the test makes it.
const STICK: &str = "version = 1
resource = 'example.com/stick'
request = { env = 'STICK_VISIBLE_DEVICES' }
follow = true
[[discover]]
path = '/dev/shm/stick/{serial}'
[device]
id = '{serial}'
nodes = [{ path = '/dev/shm/stick/{serial}', container_path = '/dev/stick' }]
";

fn install(node: &Node) -> Result<()> {
    // Nodes below a directory that every user can write to do not count.
    node.shell("chmod 755 /dev/shm; mkdir /dev/shm/stick; mknod /dev/shm/stick/one c 1 3")?;
    let directory = node.directory("live")?;
    fs::write(directory.join("stick.toml"), STICK)?;
    let deploy = relative(&directory, &binaries::source_tree().join("deploy"))?;
    let deploy = deploy.display();
    let text = format!(
        "resources: [{deploy}/overlays/cdi]\n\
         components: [{deploy}/components/dummy-npu, {deploy}/components/follow]\n\
         configMapGenerator:\n\
         - {{name: boathook-classes, namespace: boathook-system, behavior: merge, files: [stick.toml]}}\n"
    );
    fs::write(directory.join("kustomization.yaml"), text)?;
    node.apply(&node.rendered(&directory)?)?;
    node.until_devices()?;
    let status = ["rollout", "status", "daemonset/boathook-follow"];
    node.kubectl(&[&["--namespace=boathook-system"], &status[..]].concat())
        .map(drop)
}

/// The kernel's message of a device that it has, as of one that comes or goes.
const MESSAGE: &str = "echo change >/sys/class/mem/null/uevent";

/// Unplugs the device, does something, and plugs it in again.
fn replug(node: &Node, number: &str, meanwhile: impl Fn() -> Result<()>) -> Result<()> {
    node.shell(&format!("rm /dev/shm/stick/one; {MESSAGE}"))?;
    meanwhile()?;
    node.shell(&format!("mknod /dev/shm/stick/one c {number}; {MESSAGE}"))
        .map(drop)
}

/// Waits until the pod can open the device by this number, in hexadecimal.
fn until_opened(node: &Node, number: &str) -> Result<()> {
    let look = [
        "exec",
        "has",
        "--",
        "sh",
        "-c",
        "stat -c %t:%T /dev/stick && : </dev/stick",
    ];
    node.until(&format!("the pod opens {number}"), || {
        Ok(node.kubectl(&look)?.trim() == number)
    })
}

fn followed(node: &Node) -> Result<()> {
    Pod::new(Overlay::Cdi, "has", 0)
        .with(
            "/spec/containers/0/resources/limits",
            json!({"example.com/stick": 1}),
        )
        .that_stays()
        .start(node)?;
    until_opened(node, "1:3")?;
    replug(node, "10 183", || {
        node.until("the node is gone", || {
            let look = ["exec", "has", "--", "test", "!", "-e", "/dev/stick"];
            node.kubectl(&look).map(|_| true)
        })
    })?;
    // Only the rule that follow adds allows it.
    until_opened(node, "a:b7")
}

fn followed_after_kill(node: &Node) -> Result<()> {
    replug(node, "1 5", || node.signal("boathook", "KILL").map(drop))?;
    until_opened(node, "1:5")?;
    node.delete_pods(&["has"])
}

fn attached(node: &Node) -> Result<()> {
    Pod::new(Overlay::Cdi, "bare", 0).that_stays().start(node)?;
    let path = "jsonpath={.status.containerStatuses[0].containerID}";
    let id = node.kubectl(&["get", "pod", "bare", "-o", path])?;
    let (_, id) = id.split_once("://").context("an id has its engine")?;
    let boathook =
        |command: &str| node.shell(&format!("/opt/boathook/current/bin/boathook {command}"));
    let opened = || -> Result<Vec<String>> {
        let report = node.kubectl(&["exec", "bare", "--", "sh", "-c", REPORT])?;
        let nodes = report.lines().filter(|line| line.starts_with("node "));
        Ok(nodes.map(str::to_owned).collect())
    };
    let refused = boathook(&format!("attach {id} dummy-npu=npu-5"));
    let refused = refused.err().context("it was not refused")?;
    ensure!(format!("{refused:#}").contains("--force"), "{refused:#}");
    boathook(&format!("attach {id} dummy-npu=npu-5 --force"))?;
    ensure!(opened()? == ["node 5"], "attached: {:?}", opened()?);
    let used = boathook("list --used dummy-npu")?;
    ensure!(used.contains("npu-5"), "{used}");
    boathook(&format!("detach {id}"))?;
    ensure!(opened()?.is_empty(), "detached: {:?}", opened()?);
    node.delete_pods(&["bare"])
}

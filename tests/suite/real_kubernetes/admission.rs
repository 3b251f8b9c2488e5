//! The webhook, called by the real API server, with the manifests as they are.

use anyhow::{Context, Result, ensure};
use harness::binaries;
use serde_json::{Value, json};

use super::node::{BUSYBOX, Node};

/// As in the published collection.
const FRIENDLY: &str = "fpga.intel.com/arria10.dcp1.0-nlb0-orchestrated";
const REAL: &str = "fpga.intel.com/region-ce48969398f05f33946d560708be108a";

const STATUS: [&str; 5] = [
    "--namespace=boathook-webhook",
    "rollout",
    "status",
    "deployment/boathook-webhook",
    "--timeout=180s",
];

/// As docs/fpga.md has it.
pub(super) fn install(node: &Node) -> Result<()> {
    let deploy = binaries::source_tree().join("deploy/webhook");
    node.apply(&node.rendered(&deploy.join("default"))?)?;
    certificate(node)?;
    node.kubectl(&STATUS)?;
    let crds = ["acceleratorfunctions", "fpgaregions"];
    for kind in crds {
        let crd = format!("crd/{kind}.fpga.intel.com");
        node.kubectl(&["wait", "--for=condition=Established", &crd, "--timeout=60s"])?;
    }
    node.apply(&std::fs::read_to_string(deploy.join("mappings.yaml"))?)
}

fn certificate(node: &Node) -> Result<()> {
    let script = node.directory("certificate")?.join("create-certificate");
    let shipped = binaries::source_tree().join("deploy/webhook/create-certificate");
    std::fs::copy(shipped, &script)?;
    node.shell(&script.display().to_string()).map(drop)
}

/// Also the expression in `matchConditions`: a pod without it would stay as it is.
pub(super) fn maps(node: &Node) -> Result<()> {
    // The names of the objects arrive by a watch.
    node.until("the name is mapped", || {
        Ok(would_admit(node, &pod("try", FRIENDLY)).is_ok())
    })?;
    node.kubectl_with(&["create"], &pod("mapped", FRIENDLY))?;
    let text = node.kubectl(&["get", "pod", "mapped", "-o", "json"])?;
    let made: Value = serde_json::from_str(&text)?;
    let container = &made["spec"]["containers"][0];
    let wanted = json!({REAL: "1"});
    let resources = &container["resources"];
    let is_so = resources["limits"] == wanted && resources["requests"] == wanted;
    ensure!(is_so, "resources: {resources}");
    let variables = json!([
        {"name": "FPGA_REGION_1", "value": "ce48969398f05f33946d560708be108a"},
        {"name": "FPGA_AFU_1", "value": "d8424dc4a4a3c413f89e433683f9040b"},
    ]);
    let found = &container["env"];
    ensure!(*found == variables, "variables: {found}");
    Ok(())
}

pub(super) fn denies(node: &Node) -> Result<()> {
    let unknown = node.kubectl_with(&["create"], &pod("unknown", "fpga.intel.com/nothing"));
    let said = format!("{:#}", unknown.err().context("it was admitted")?);
    let names_both = said.contains("pods.fpga.boathook.dev") && said.contains("no such resource");
    ensure!(names_both, "{said}");
    Ok(())
}

/// The API server's own structural schemas refuse what the types do.
pub(super) fn schemas(node: &Node) -> Result<()> {
    let object = |kind: &str, spec: Value| {
        json!({"apiVersion": "fpga.intel.com/v2", "kind": kind, "metadata": {"name": "wrong"}, "spec": spec})
            .to_string()
    };
    for wrong in [
        object("FpgaRegion", json!({"interfaceId": "no digits"})),
        object("FpgaRegion", json!({})),
        object(
            "AcceleratorFunction",
            json!({"interfaceId": "ce489693", "afuId": "d8424dc4", "mode": "other"}),
        ),
    ] {
        ensure!(would_admit(node, &wrong).is_err(), "admitted: {wrong}");
    }
    Ok(())
}

/// The webhook reads the changed Secret, and the API server the changed bundle.
pub(super) fn certificate_replaced(node: &Node) -> Result<()> {
    certificate(node)?;
    node.until("the webhook has the new certificate", || {
        Ok(would_admit(node, &pod("try", FRIENDLY)).is_ok())
    })
}

/// Only pods that ask for an FPGA are concerned while it is down.
pub(super) fn down(node: &Node) -> Result<()> {
    let scale = |replicas: &str| {
        node.kubectl(&[
            "--namespace=boathook-webhook",
            "scale",
            "deployment/boathook-webhook",
            replicas,
        ])
    };
    scale("--replicas=0")?;
    node.until("there is no webhook", || {
        Ok(would_admit(node, &pod("try", FRIENDLY)).is_err())
    })?;
    would_admit(node, &pod("other", "example.com/other"))?;
    scale("--replicas=2")?;
    node.kubectl(&STATUS).map(drop)
}

/// Checks that an API server without cert-manager accepts all objects but that one's own.
pub(super) fn cert_manager(node: &Node) -> Result<()> {
    let overlay = binaries::source_tree().join("deploy/webhook/cert-manager");
    let rendered = node.rendered(&overlay)?;
    let (theirs, ours): (Vec<&str>, Vec<&str>) = rendered
        .split("\n---\n")
        .partition(|object| object.contains("apiVersion: cert-manager.io/"));
    ensure!(theirs.len() == 2, "objects of cert-manager: {theirs:?}");
    node.kubectl_with(&["apply", "--dry-run=server"], &ours.join("\n---\n"))
        .map(drop)
}

/// Returns the answer of the API server, which creates nothing.
fn would_admit(node: &Node, object: &str) -> Result<String> {
    node.kubectl_with(&["create", "--dry-run=server"], object)
}

fn pod(name: &str, resource: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{
            "name": "main", "image": BUSYBOX, "command": ["true"],
            "resources": {"limits": {resource: 1}},
        }]},
    })
    .to_string()
}

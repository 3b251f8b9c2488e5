//! The extender, asked by the real kube-scheduler about five nodes, with the manifests as
//! they are.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use harness::binaries;
use serde_json::json;

use super::daemons::Daemon;
use super::node::{BUSYBOX, NAME, Node};

/// The resource that a pod requests.
const GPU: &str = "nvidia.com/gpu";
const MEMORY: &str = "aliyun.com/gpu-mem";

/// Four nodes that are objects alone. Only the test's pods run there.
const OTHERS: [&str; 4] = ["object-1", "object-2", "object-3", "object-4"];

/// Nodes with eight GPUs, and with two of 80 GB by memory.
pub(super) fn nodes(node: &Node) -> Result<()> {
    for name in OTHERS {
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": [{"key": "test", "value": "object", "effect": "NoSchedule"}]},
        });
        node.apply(&object.to_string())?;
    }
    for name in OTHERS.iter().chain(&[NAME]) {
        node.kubectl(&["label", "node", name, "example.com/gpu=a100-80gb"])?;
        let mut units =
            json!({"pods": "110", "cpu": "8", "memory": "64Gi", GPU: "8", MEMORY: "160"});
        if *name == NAME {
            // The rest is the kubelet's.
            units = json!({GPU: "8", MEMORY: "160"});
        }
        let mut status = json!({"capacity": units.clone(), "allocatable": units});
        if *name != NAME {
            status["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        }
        let patch = json!({"status": status}).to_string();
        node.kubectl(&[
            "patch",
            "node",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ])?;
    }
    Ok(())
}

/// The Deployment, and kube-scheduler with the configuration that asks it.
pub(super) fn install(node: &Node) -> Result<()> {
    let deploy = binaries::source_tree().join("deploy/scheduler/extender");
    node.apply(&node.rendered(&deploy)?)?;
    node.kubectl(&[
        "--namespace=boathook-scheduler",
        "rollout",
        "status",
        "deployment/boathook-scheduler",
        "--timeout=180s",
    ])?;
    let address = node.kubectl(&[
        "--namespace=boathook-scheduler",
        "get",
        "service",
        "boathook-scheduler",
        "-o",
        "jsonpath={.spec.clusterIP}",
    ])?;
    let shipped = std::fs::read_to_string(deploy.join("kube-scheduler.yaml"))?;
    node.configure_scheduler(&shipped.replace("10.96.0.88", &address))
}

/// Without the extender and `MostAllocated` they would be spread.
pub(super) fn packs(node: &Node) -> Result<()> {
    let placed: Vec<String> = (0..8)
        .map(|number| placed(node, &format!("gpu-{number}"), GPU, 1, None))
        .collect::<Result<_>>()?;
    let used: BTreeSet<_> = placed.iter().collect();
    ensure!(used.len() == 1, "pods with one GPU are on {placed:?}");
    let whole = self::placed(node, "whole", GPU, 8, None)?;
    ensure!(!used.contains(&whole), "it is on a node that is full");
    Ok(())
}

/// By memory, which no plugin of kube-scheduler knows to be in two GPUs.
pub(super) fn knows_devices(node: &Node) -> Result<()> {
    let where_to = Some(OTHERS[3]);
    for name in ["half-a", "half-b"] {
        placed(node, name, MEMORY, 50, where_to)?;
    }
    node.apply(&pod("too-large", MEMORY, 40, where_to))?;
    let mut said = String::new();
    node.until("kube-scheduler has refused the pod", || {
        Ok(node.described("too-large")?.contains("FailedScheduling"))
    })?;
    said.push_str(&node.described("too-large")?);
    ensure!(
        said.contains("gpu-mem") && said.contains("device"),
        "it said {said}"
    );
    placed(node, "small", MEMORY, 30, where_to)?;
    Ok(())
}

/// Checks the figures that the extender itself has counted.
pub(super) fn was_asked(node: &Node) -> Result<()> {
    let pods = node.kubectl(&[
        "--namespace=boathook-scheduler",
        "get",
        "pods",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ])?;
    let mut all = String::new();
    for pod in pods.split_whitespace() {
        let path = format!("/api/v1/namespaces/boathook-scheduler/pods/{pod}:8081/proxy/metrics");
        all += &node.kubectl(&["get", "--raw", &path])?;
    }
    for verb in ["filter", "prioritize"] {
        let asked = all.lines().any(|line| {
            let value = line
                .rsplit(' ')
                .next()
                .and_then(|value| value.parse::<f64>().ok());
            line.contains("_requests_total") && line.contains(verb) && value > Some(0.0)
        });
        ensure!(asked, "{verb} was not asked: {all}");
    }
    Ok(())
}

/// Without it pods are scheduled as before.
pub(super) fn is_ignorable(node: &Node) -> Result<()> {
    node.kubectl(&[
        "--namespace=boathook-scheduler",
        "delete",
        "deployment",
        "boathook-scheduler",
    ])?;
    placed(node, "without", GPU, 1, None).map(drop)
}

/// Returns the node on which kube-scheduler puts a pod.
fn placed(node: &Node, name: &str, resource: &str, units: u32, on: Option<&str>) -> Result<String> {
    node.apply(&pod(name, resource, units, on))?;
    let path = "jsonpath={.spec.nodeName}";
    node.until(&format!("the pod {name} has a node"), || {
        Ok(!node.kubectl(&["get", "pod", name, "-o", path])?.is_empty())
    })
    .with_context(|| node.described(name).unwrap_or_default())?;
    node.kubectl(&["get", "pod", name, "-o", path])
}

fn pod(name: &str, resource: &str, units: u32, on: Option<&str>) -> String {
    let selected = on.map(|node| json!({"kubernetes.io/hostname": node}));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "tolerations": [{"key": "test", "operator": "Exists"}],
            "nodeSelector": selected,
            "containers": [{
                "name": "main", "image": BUSYBOX, "command": ["sleep", "100000"],
                "resources": {"limits": {resource: units}},
            }],
        },
    })
    .to_string()
}

impl Node {
    /// Has kube-scheduler use a configuration, with its own access to the API server.
    fn configure_scheduler(&self, shipped: &str) -> Result<()> {
        let own = "clientConnection: {kubeconfig: /etc/kubernetes/admin.conf}\nleaderElection: {leaderElect: false}";
        let text = format!("{shipped}\n{own}\n");
        self.write("/etc/kubernetes/scheduler.yaml", &text)?;
        self.restart(Daemon::Scheduler, "TERM")
    }
}

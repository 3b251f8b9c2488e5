//! Installs Boathook in a cluster, and removes it.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use harness::binaries;
use harness::demo_host::DemoHost;
use harness::manifests::chart;
use serde_json::{Value, json};

use super::node::{NAME, Node, list_objects};

/// The mechanism that brings the hook to containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlay {
    /// CDI: nothing of the engine is changed.
    Cdi,
    /// A handler of containerd.
    Containerd,
    /// A handler of CRI-O.
    Crio,
}

/// The way in which the manifests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manifests {
    Kustomize,
    Chart,
}

/// A class of the test: its device is none that containers may use, so that a rule is
/// needed, and no other has its number.
pub(super) const OWN_CLASS: &str = "version = 1
resource = 'example.com/rng'
request = { env = 'RNG_VISIBLE_DEVICES' }
[[discover]]
path = '/dev/hwrng'
[device]
id = 'rng'
nodes = [{ path = '/dev/hwrng', mode = '0444' }]
";

/// The number of devices of the class dummy-npu.
pub(super) const DEVICES: &str = "64";

impl Overlay {
    /// The name of its directory.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cdi => "cdi",
            Self::Containerd => "containerd",
            Self::Crio => "crio",
        }
    }

    /// Returns the runtime class that pods need beside a limit.
    pub(super) fn runtime_class(self) -> Option<&'static str> {
        match self {
            Self::Cdi => None,
            Self::Containerd | Self::Crio => Some("boathook"),
        }
    }

    /// Its manifests, or those to uninstall, with the test's devices.
    fn manifests(self, node: &Node, made_by: Manifests, group: &str) -> Result<String> {
        match made_by {
            Manifests::Chart => {
                let mut objects = self.render_chart(group)?;
                objects.retain(|object| !is_test(object));
                let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
                Ok(list_objects(&objects))
            }
            Manifests::Kustomize => {
                let directory = node.directory("kustomization")?;
                fs::write(directory.join("rng.toml"), OWN_CLASS)?;
                let deploy = relative(&directory, &binaries::source_tree().join("deploy"))?;
                let deploy = deploy.display();
                let text = format!(
                    "resources: [{deploy}/{group}/{}]\ncomponents: [{deploy}/components/dummy-npu]\n\
                     configMapGenerator:\n- name: boathook-classes\n  namespace: boathook-system\n  \
                     behavior: merge\n  files: [rng.toml]\n",
                    self.name()
                );
                fs::write(directory.join("kustomization.yaml"), text)?;
                node.rendered(&directory)
            }
        }
    }

    /// Returns the objects of the chart, with the pod of `helm test`.
    fn render_chart(self, group: &str) -> Result<Vec<Value>> {
        let values = json!({
            "engine": self.name(),
            "classes": {"enabled": ["dummy-npu"]},
            "tests": {"resources": {DemoHost::RESOURCE: 2}},
            "uninstall": group == "uninstall",
        });
        chart(&values)?.context("needs helm, or scripts/install-helm")
    }

    /// Returns the pod that `helm test` makes.
    pub(super) fn test_pod(self) -> Result<Value> {
        let mut objects = self.render_chart("overlays")?.into_iter();
        objects.find(is_test).context("the chart has no test")
    }

    /// Installs it as docs/administration.md has it, until the node has the devices.
    pub(super) fn install(self, node: &Node, made_by: Manifests) -> Result<()> {
        if made_by == Manifests::Chart {
            node.shell(
                "kubectl create namespace boathook-system
                 kubectl label namespace boathook-system pod-security.kubernetes.io/enforce=privileged",
            )?;
        }
        node.apply(&self.manifests(node, made_by, "overlays")?)?;
        if self != Self::Cdi {
            node.rolled_out()?;
            node.restart(node.engine.daemon(), "TERM")?;
        }
        node.until_devices()
    }

    /// Removes it.
    pub(super) fn remove(self, node: &Node, made_by: Manifests) -> Result<()> {
        let manifests = self.manifests(node, made_by, "uninstall")?;
        node.apply(&manifests)?;
        node.rolled_out()?;
        node.kubectl_with(&["delete"], &manifests)?;
        if made_by == Manifests::Chart {
            node.kubectl(&["delete", "namespace", "boathook-system"])?;
        }
        Ok(())
    }
}

impl Node {
    /// Waits until the DaemonSet's pod is the newest.
    pub(super) fn rolled_out(&self) -> Result<()> {
        self.kubectl(&[
            "--namespace=boathook-system",
            "rollout",
            "status",
            "daemonset/boathook",
            "--timeout=180s",
        ])
        .with_context(|| {
            let pods = ["--namespace=boathook-system", "describe", "pods"];
            self.kubectl(&pods).unwrap_or_default()
        })
        .map(drop)
    }

    /// Waits until pods can be given all devices.
    pub(super) fn until_devices(&self) -> Result<()> {
        self.until("the devices are allocatable", || {
            Ok(self.allocatable()? == DEVICES)
        })
    }

    /// Returns the number of healthy devices that the kubelet has by the plugin.
    pub(super) fn allocatable(&self) -> Result<String> {
        let path = "jsonpath={.status.allocatable.dummy\\.com/npu}";
        self.kubectl(&["get", "node", NAME, "-o", path])
    }
}

/// Whether Helm makes an object only for `helm test`.
fn is_test(object: &Value) -> bool {
    object["metadata"]["annotations"]["helm.sh/hook"] == "test"
}

/// The way from one directory to another: kustomize takes no absolute one.
pub(super) fn relative(from: &Path, to: &Path) -> Result<PathBuf> {
    let steps = fs::canonicalize(from)?.components().count() - 1;
    let up = std::iter::repeat_n(Component::ParentDir, steps);
    let to = fs::canonicalize(to)?;
    let down = to.components().skip(1);
    Ok(up.chain(down).collect())
}

//! A pod that reports what devices it has.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use harness::demo_host::DemoHost;
use serde_json::{Value, json};

use super::node::{BUSYBOX, Node};
use super::overlay::Overlay;

/// Opens each device: a line for one that it can open, and one for those in the variable.
pub(super) const REPORT: &str = "for node in /dev/dummy-npu*; do
        [ -c $node ] && : <$node && echo node ${node#/dev/dummy-npu}
    done
    echo variable $DUMMY_VISIBLE_DEVICES";

/// The same, and stays until it is told to end.
const REPORT_AND_STAY: &str = "; trap 'exit 0' TERM; sleep 100000 & wait";

/// A manifest of one.
#[derive(Clone)]
pub(super) struct Pod {
    pub(super) name: String,
    manifest: Value,
}

/// The devices of a container.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Devices {
    /// Those that it can open.
    pub(super) opened: BTreeSet<usize>,
    /// Those in its variable; `all` names none.
    pub(super) named: BTreeSet<usize>,
}

impl Pod {
    /// A pod with so many devices, which reports and ends.
    pub(super) fn new(overlay: Overlay, name: &str, devices: usize) -> Self {
        let mut manifest = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"test": "yes"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [container("main", devices, REPORT)],
            },
        });
        if let Some(class) = overlay.runtime_class() {
            manifest["spec"]["runtimeClassName"] = class.into();
        }
        Self {
            name: name.to_owned(),
            manifest,
        }
    }

    /// Its container does not end.
    pub(super) fn that_stays(self) -> Self {
        let script = format!("{REPORT}{REPORT_AND_STAY}");
        self.with("/spec/containers/0/command/2", script)
    }

    /// Changes a value that the manifest has.
    pub(super) fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        *self.manifest.pointer_mut(pointer).unwrap() = value.into();
        self
    }

    /// Adds a field to its specification.
    pub(super) fn specified(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.manifest["spec"][key] = value.into();
        self
    }

    /// With a claim in its container.
    pub(super) fn claiming(self, claim: Value) -> Self {
        let mut claim = claim;
        claim["name"] = "own".into();
        self.specified("resourceClaims", json!([claim]))
            .with("/spec/containers/0/resources", claimed())
    }

    /// Adds a variable to its container.
    pub(super) fn variable(mut self, value: &str) -> Self {
        self.manifest["spec"]["containers"][0]["env"] =
            json!([{"name": DemoHost::VARIABLE, "value": value}]);
        self
    }

    /// Adds an annotation.
    pub(super) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.manifest["metadata"]["annotations"][key] = value.into();
        self
    }

    pub(super) fn text(&self) -> String {
        self.manifest.to_string()
    }

    /// Runs it to its end, removes it, and gives what it reported.
    pub(super) fn run(&self, node: &Node) -> Result<Devices> {
        node.apply(&self.text())?;
        node.until(&format!("the pod {} has ended", self.name), || {
            Ok(["Succeeded", "Failed"].contains(&&*node.phase(&self.name)?))
        })
        .or_else(|error| bail!("{error:#}: {}", node.described(&self.name)?))?;
        if node.phase(&self.name)? == "Failed" {
            bail!("it failed: {}", node.described(&self.name)?);
        }
        let devices = node.devices_of(&self.name, "main")?;
        node.delete_pods(&[&self.name])?;
        Ok(devices)
    }

    /// Starts it, and gives what it reported as soon as it runs.
    pub(super) fn start(&self, node: &Node) -> Result<Devices> {
        node.apply(&self.text())?;
        node.reported(&self.name)
    }
}

impl Devices {
    /// That it has so many, and those in its variable.
    pub(super) fn number(&self, wanted: usize) -> Result<()> {
        if self.opened.len() != wanted || self.opened != self.named {
            bail!("{wanted} devices were wanted, but it has {self:?}");
        }
        Ok(())
    }

    /// Parses the output of a container.
    fn parse(printed: &str) -> Result<Self> {
        let mut devices = Self::default();
        let mut complete = false;
        for line in printed.lines() {
            if let Some(index) = line.strip_prefix("node ") {
                devices.opened.insert(index.parse()?);
            } else if let Some(names) = line.strip_prefix("variable") {
                complete = true;
                for name in names.split([' ', ',']).filter(|name| !name.is_empty()) {
                    let index = name.strip_prefix("npu-").unwrap_or(name);
                    devices.named.extend(index.parse::<usize>());
                }
            }
        }
        complete.then_some(devices).context("it has not reported")
    }
}

/// The resources of a container with the pod's claim.
pub(super) fn claimed() -> Value {
    json!({"claims": [{"name": "own"}]})
}

/// A container of a pod's manifest.
pub(super) fn container(name: &str, devices: usize, script: &str) -> Value {
    let limits = match devices {
        0 => json!({}),
        _ => json!({DemoHost::RESOURCE: devices}),
    };
    json!({
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "resources": {"limits": limits},
    })
}

impl Node {
    pub(super) fn phase(&self, pod: &str) -> Result<String> {
        self.kubectl(&["get", "pod", pod, "-o", "jsonpath={.status.phase}"])
    }

    /// Returns the statuses and the events of a pod, as kubectl prints them.
    pub(super) fn described(&self, pod: &str) -> Result<String> {
        let text = self.kubectl(&["describe", "pod", pod])?;
        let events = text.split_once("Events:").map_or("", |(_, events)| events);
        Ok(events.trim().to_owned())
    }

    /// Returns the report of a container.
    pub(super) fn devices_of(&self, pod: &str, container: &str) -> Result<Devices> {
        Devices::parse(&self.kubectl(&["logs", pod, "-c", container])?)
    }

    /// Waits for the report of a pod that stays, and returns it.
    pub(super) fn reported(&self, pod: &str) -> Result<Devices> {
        self.until(&format!("the pod {pod} has reported"), || {
            self.devices_of(pod, "main").map(|_| true)
        })
        .or_else(|error| bail!("{error:#}: {}", self.described(pod)?))?;
        self.devices_of(pod, "main")
    }

    /// Removes pods, and waits for their end.
    pub(super) fn delete_pods(&self, pods: &[&str]) -> Result<()> {
        self.kubectl(&[&["delete", "pod", "--now"], pods].concat())
            .map(drop)
    }
}

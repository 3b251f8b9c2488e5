//! Device plugins in DaemonSets: ours, and one that only registers and answers.

use std::fs;

use anyhow::{Context, Result};
use harness::binaries;
use serde_json::json;

use crate::real_kubernetes::node::{BUSYBOX, NAME, Node};

const KUBELET_METRICS: &str = "/api/v1/nodes/node-0/proxy/metrics";

/// A DaemonSet with one device plugin.
pub(super) struct DevicePlugin {
    /// Its process, and the resource that it registers.
    pub(super) program: &'static str,
    pub(super) resource: &'static str,
    namespace: &'static str,
    pub(super) daemon_set: &'static str,
}

pub(super) const OURS: DevicePlugin = DevicePlugin {
    program: "boathook-plugin",
    resource: "dummy.com/npu",
    namespace: "boathook-system",
    daemon_set: "daemonset/boathook",
};

/// A plugin that only registers and answers.
pub(super) const TRIVIAL: DevicePlugin = DevicePlugin {
    resource: "example.com/trivial",
    ..VENDORS
};

/// The plugin of a vendor, for a resource that Boathook has served.
pub(super) const VENDORS: DevicePlugin = DevicePlugin {
    program: "trivial-plugin",
    resource: "example.com/null",
    namespace: "default",
    daemon_set: "daemonset/trivial-plugin",
};

impl DevicePlugin {
    pub(super) fn kubectl(&self, node: &Node, arguments: &[&str]) -> Result<String> {
        node.kubectl(&[&["--namespace", self.namespace], arguments].concat())
    }

    /// Returns how often the kubelet has registered the plugin.
    pub(super) fn count_registrations(&self, node: &Node) -> Result<f64> {
        let page = node.kubectl(&["get", "--raw", KUBELET_METRICS])?;
        let start = format!(
            "kubelet_device_plugin_registration_total{{resource_name=\"{}\"}} ",
            self.resource
        );
        let count = page.lines().find_map(|line| line.strip_prefix(&start));
        let count = count.context("the kubelet has never registered it")?;
        Ok(count.parse()?)
    }

    /// Returns the number of devices that pods can be given.
    pub(super) fn count_devices(&self, node: &Node) -> Result<String> {
        let resource = self.resource.replace('.', "\\.");
        let path = format!("jsonpath={{.status.allocatable.{resource}}}");
        node.kubectl(&["get", "node", NAME, "-o", &path])
    }

    /// Starts a plugin that only registers and answers, with this CDI device for each container, and
    /// waits until it has registered.
    pub(super) fn start(&self, node: &Node, devices: &str, cdi_name: Option<&str>) -> Result<()> {
        let program = "/usr/local/sbin/trivial-plugin";
        fs::copy(binaries::program(self.program)?, node.file(program))?;
        let directory = "/var/lib/kubelet/device-plugins";
        let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
        let volume = |name: &str, path: &str| json!({"name": name, "hostPath": {"path": path}});
        let mut command = vec![program, directory, self.resource, devices];
        command.extend(cdi_name);
        let labels = json!({"app": self.program});
        let manifest = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": self.program},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    // With 0 the next pod would start, and register, before this one has ended, and
                    // the kubelet would disconnect it at that end.
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "plugin", "image": BUSYBOX, "imagePullPolicy": "Never",
                        "command": command,
                        "volumeMounts": [mount("sockets", directory), mount("program", program)],
                    }],
                    "volumes": [volume("sockets", directory), volume("program", program)],
                },
            }},
        });
        node.apply(&manifest.to_string())?;
        node.until("the other plugin has registered", || {
            Ok(self.count_devices(node)? == devices)
        })
    }

    /// Ends it.
    pub(super) fn delete(&self, node: &Node) -> Result<()> {
        self.kubectl(node, &["delete", self.daemon_set, "--cascade=foreground"])
            .map(drop)
    }
}

//! Finds devices that a container has without a request. The engine added their device nodes to
//! config.json, because of `--device` or of a CDI specification that does not call the hook.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::device::{DeviceNumber, DeviceRule};
use device_class::discover::{self, FoundClass, FoundNode, Health, PathLookup};
use device_class::host::{Entry, HostView, RealHost};
use hook::planner;
use injection_plan::plan::{
    Action, BindMount, InjectionPlan, InjectionStep, MountAttributes, SourceKind, SpecNode,
};

use super::injected;
use super::spec::ContainerSpec;
use crate::command::finding::{Finding, Severity};
use crate::command::running_root::RunningContainerRoot;

/// The devices that a container has without a request, because config.json has their device nodes.
#[derive(Default)]
pub(super) struct UnrequestedDevices {
    /// The devices, each in the form `DEVICE of CLASS`, for messages.
    devices: Vec<String>,
    findings: Vec<Finding>,
    /// A plan that contains the device nodes and their device rules. `boathook doctor` uses it to
    /// check the container's cgroup and user.
    pub(super) plan: InjectionPlan,
}

impl UnrequestedDevices {
    /// Finds the devices of `known_classes` whose device nodes are in config.json.
    pub(super) fn find(
        spec: &ContainerSpec,
        known_classes: &[DeviceClass],
        config: &Config,
    ) -> Self {
        let mut unrequested_devices = UnrequestedDevices::default();
        let nodes = &spec.bundle.spec_devices.nodes;
        let host = if nodes.is_empty() {
            None
        } else {
            planner::open_host(config).ok()
        };
        let Some(host) = host else {
            return unrequested_devices;
        };
        let nodes = &compare_spec_nodes(nodes, &host);
        for class in known_classes {
            let found_class = discover::look_up_class(class, (&BTreeSet::new()).into(), &host);
            if let Ok(found_class) = found_class {
                unrequested_devices.add_class_devices(class, &found_class, nodes);
            }
        }
        unrequested_devices
    }

    pub(super) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    fn add_class_devices(
        &mut self,
        class: &DeviceClass,
        found_class: &FoundClass,
        spec_nodes: &[ComparedSpecNode<'_>],
    ) {
        let mut nodes_by_owner = Vec::new();
        for device in &found_class.inventory.devices {
            let required_nodes = list_required_nodes(&device.nodes);
            if !required_nodes
                .iter()
                .any(|required_node| required_node.find_spec_path(spec_nodes).is_some())
            {
                continue;
            }
            let name = format!("{} of {}", device.id, class.name);
            if let Health::Unhealthy { reason } = &device.health {
                self.add_warning(&format!("{name} is unhealthy: {reason}"));
            }
            self.devices.push(name);
            nodes_by_owner.push((device.id.to_string(), required_nodes));
        }
        if !nodes_by_owner.is_empty() {
            nodes_by_owner.push((
                class.name.to_string(),
                list_required_nodes(&found_class.edits.nodes),
            ));
        }
        for (owner_label, required_nodes) in nodes_by_owner {
            for required_node in required_nodes {
                if let Some(path) = required_node.find_spec_path(spec_nodes) {
                    required_node.add_to_plan(path, &mut self.plan, &owner_label)
                } else {
                    let path = required_node.node.container_path.display();
                    self.add_warning(&format!(
                        "config.json lacks {path}, which {owner_label} needs"
                    ));
                }
            }
        }
    }

    fn add_warning(&mut self, text: &str) {
        let finding = Finding::new(Severity::Warning, "devices", text);
        self.findings.push(finding);
    }

    pub(super) fn into_findings(
        self,
        spec: &ContainerSpec,
        root: Option<&RunningContainerRoot>,
    ) -> Vec<Finding> {
        const MAX_SHOWN_DEVICES: usize = 8;
        let text = "the container sets no variable of any class";
        let mut findings = vec![Finding::new(Severity::Ok, "request", text)];
        let shown_devices = &self.devices[..self.devices.len().min(MAX_SHOWN_DEVICES)];
        let more_note = match self.devices.len() - shown_devices.len() {
            0 => String::new(),
            more_count => format!(" and {more_count} more"),
        };
        let text = format!(
            "{}{more_note}, by nodes in config.json: a CDI specification, `--device` or `--privileged` \
             added them",
            shown_devices.join(", ")
        );
        findings.push(Finding::new(Severity::Ok, "devices", text));
        findings.extend(self.findings);
        if spec.bundle.hooks.find_boathook_hooks().next().is_none() {
            let text = "config.json has no boathook hook: libraries and files of the class are in \
                        the container only if its image or the specification has them";
            findings.push(Finding::new(Severity::Note, "hook", text));
        }
        findings.extend(root.map(|root| {
            injected::create_missing_files_finding(
                root.find_missing_files(&self.plan),
                "every node is in the container",
                "create the container again: its nodes were removed or replaced",
            )
        }));
        findings
    }
}

/// A device node of config.json, and how its path compares with the host.
struct ComparedSpecNode<'a> {
    node: &'a SpecNode,
    /// True if the host has no such node at this path, because the engine placed the node there, as
    /// with `--device A:B`.
    is_at_other_path: bool,
}

fn compare_spec_nodes<'a>(nodes: &'a [SpecNode], host: &RealHost) -> Vec<ComparedSpecNode<'a>> {
    let placed_nodes = nodes.iter().map(|node| {
        let host_entry = host.entry(&node.path);
        let is_same =
            matches!(host_entry, Ok(Some(Entry::Device(number))) if number == node.number);
        ComparedSpecNode {
            node,
            is_at_other_path: !is_same,
        }
    });
    placed_nodes.collect()
}

/// A device node of a class that exists on the host.
struct RequiredNode<'a> {
    node: &'a FoundNode,
    number: DeviceNumber,
}

impl RequiredNode<'_> {
    /// Returns the path of this node in config.json: its own path, or the path to which the engine
    /// moved it, as with `--device A:B`.
    fn find_spec_path<'n>(&self, spec_nodes: &[ComparedSpecNode<'n>]) -> Option<&'n Path> {
        let is_this_node = |placed: &&ComparedSpecNode| {
            let is_at_own_path = placed.node.path == self.node.container_path;
            placed.node.number == self.number && (is_at_own_path || placed.is_at_other_path)
        };
        let placed_node = spec_nodes.iter().find(is_this_node)?;
        Some(&placed_node.node.path)
    }

    fn add_to_plan(&self, path: &Path, plan: &mut InjectionPlan, owner_labels: &str) {
        let rule = DeviceRule {
            number: self.number,
            access: self.node.access,
        };
        let mount = BindMount {
            source: self.node.host_path.clone(),
            path: path.to_owned(),
            source_kinds: &[SourceKind::Device],
            recursive: false,
            attributes: MountAttributes::default(),
            is_optional: false,
            is_image_module: false,
        };
        let number = self.number;
        let node = Action::Node {
            mount,
            number,
            created_node_permissions: None,
        };
        for action in [
            Action::Allow {
                rule,
                is_in_spec: true,
                owners_by_access: [].into(),
                host_node_path: None,
            },
            node,
        ] {
            plan.steps.push(InjectionStep {
                action,
                owner_labels: owner_labels.to_owned(),
                owners: Vec::new(),
            });
        }
    }
}

/// Returns the device nodes on the host that every container with devices of the class needs.
/// Leaves out nodes that only containers with a certain capability of the class need.
fn list_required_nodes(nodes: &[FoundNode]) -> Vec<RequiredNode<'_>> {
    let required_nodes = nodes.iter().filter(|node| node.capability.is_none());
    required_nodes
        .filter_map(|node| match node.number {
            PathLookup::Found(number) => Some(RequiredNode { node, number }),
            PathLookup::OptionalAbsent | PathLookup::Unusable(_) => None,
        })
        .collect()
}

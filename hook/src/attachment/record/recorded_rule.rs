//! The device rules in attachment records. Each rule is recorded with the devices and classes that
//! need it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::device::{Access, DeviceRule};
use injection_plan::plan::{Action, InjectionStep, StepOwner};
use serde::{Deserialize, Serialize};

use crate::attachment::record::{FileIdentity, device_text, to_st_rdev};
use crate::container::{Resolver, RootDir};

/// A device rule that was added to a container's cgroup, as an attachment record describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRule {
    #[serde(with = "rule_text")]
    pub rule: DeviceRule,
    /// The devices and the classes that need the rule. If the list is empty, the rule is not
    /// revoked when devices are detached.
    #[serde(rename = "for", with = "device_text::owners")]
    pub owners: Vec<StepOwner>,
    /// The device node on the host when the rule was added. `None` means that the host had no such
    /// node, and the hook created one in the container.
    #[serde(default, rename = "host", skip_serializing_if = "Option::is_none")]
    pub host_node: Option<HostNode>,
    /// Whether the rule was added because a user attached the device. When such a rule is revoked,
    /// the rules of config.json for the same device stay in force.
    #[serde(
        default,
        rename = "beside_spec",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub keeps_spec_access: bool,
}

/// A device node of the host, with its path and its identity. If a device is unplugged and another
/// device is plugged in, the identity changes, even if the path and the device number are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNode {
    path: PathBuf,
    identity: FileIdentity,
}

impl HostNode {
    /// Finds the device node at a path of the host whose root directory is `host_root`. Returns
    /// `None` if no device node with the device number of `rule` is at the path.
    fn find(host_root: &Path, path: &Path, rule: &DeviceRule) -> Option<Self> {
        let identity = find_node_identity(host_root, path)?;
        (identity[2] == to_st_rdev(rule.number)).then(|| HostNode {
            identity,
            path: path.to_owned(),
        })
    }

    /// Reports whether the host node was removed, or has another device number now.
    pub fn has_changed_number(&self, host_root: &Path) -> bool {
        let get_number = |[_, _, device_number]: FileIdentity| device_number;
        find_node_identity(host_root, &self.path).map(get_number) != Some(get_number(self.identity))
    }

    /// Reports whether the host node was removed, or was replaced by another node at the same path.
    pub fn is_replaced(&self, host_root: &Path) -> bool {
        find_node_identity(host_root, &self.path) != Some(self.identity)
    }
}

/// Returns the identity of the device node to which a host path leads. Returns `None` if the path
/// does not lead to a device node.
fn find_node_identity(host_root: &Path, path: &Path) -> Option<FileIdentity> {
    let host_root = RootDir::open(host_root, Resolver::Walk).ok()?;
    let node = host_root.lookup(path).ok()??;
    node.kind().is_device().then(|| node.identity().numbers())
}

impl RecordedRule {
    /// Creates the record of a rule that the owners of `step` need.
    pub fn from_step(rule: DeviceRule, step: &InjectionStep) -> Self {
        RecordedRule {
            rule,
            owners: step.owners.clone(),
            host_node: None,
            keeps_spec_access: false,
        }
    }

    /// Replaces the recorded host node by the node that is at its path now. Does nothing if the
    /// node there has another device number than the rule, because it then belongs to another
    /// device.
    pub fn update_host_node(&mut self, host_root: &Path) {
        if let Some(node) = &mut self.host_node
            && let Some(current_node) = HostNode::find(host_root, &node.path, &self.rule)
        {
            *node = current_node;
        }
    }

    /// Reports whether the recorded host node was removed, or was replaced by another node at the
    /// same path. Returns false if no host node is recorded.
    pub fn has_lost_host_node(&self, host_root: &Path) -> bool {
        let node = self.host_node.as_ref();
        node.is_some_and(|node| node.is_replaced(host_root))
    }
}

/// Records the host node of each rule's device. Takes the path of the node from the step in `steps`
/// that has the same rule.
pub fn add_host_nodes(rules: &mut [RecordedRule], steps: &[InjectionStep], host_root: &Path) {
    for recorded_rule in rules {
        let path = steps.iter().find_map(|step| match &step.action {
            Action::Allow {
                rule,
                host_node_path,
                ..
            } if rule.number == recorded_rule.rule.number => host_node_path.as_ref(),
            _ => None,
        });
        recorded_rule.host_node =
            path.and_then(|path| HostNode::find(host_root, path, &recorded_rule.rule));
    }
}

/// Returns only the device rules, without the devices that need them. Functions that change cgroups
/// take rules in this form.
pub fn to_device_rules(rules: &[RecordedRule]) -> Vec<DeviceRule> {
    rules.iter().map(|rule| rule.rule).collect()
}

/// Returns the device rules of injection steps, with the devices and classes that need each rule.
/// If some need more access than others, returns one rule for each access, so that each rule can be
/// revoked separately.
pub fn list_step_rules(steps: &[InjectionStep]) -> impl Iterator<Item = RecordedRule> {
    steps.iter().flat_map(|step| match &step.action {
        Action::Allow {
            rule,
            owners_by_access,
            ..
        } => split_by_access(*rule, owners_by_access, step),
        _ => Vec::new(),
    })
}

fn split_by_access(
    rule: DeviceRule,
    owners_by_access: &BTreeMap<Access, Vec<StepOwner>>,
    step: &InjectionStep,
) -> Vec<RecordedRule> {
    if owners_by_access.is_empty() {
        return vec![RecordedRule::from_step(rule, step)];
    }
    let rules = owners_by_access.iter().map(|(access, owners)| {
        let access = *access;
        RecordedRule {
            owners: owners.clone(),
            ..RecordedRule::from_step(DeviceRule { access, ..rule }, step)
        }
    });
    rules.collect()
}

/// Serializes and deserializes device rules as texts, such as `c 10:183 rw`.
mod rule_text {
    use device_class::device::DeviceRule;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(
        rule: &DeviceRule,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(rule)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DeviceRule, D::Error> {
        let text = String::deserialize(deserializer)?;
        let rule = DeviceRule::parse(&text);
        rule.ok_or_else(|| Error::custom(format_args!("{text:?} is no device rule")))
    }
}

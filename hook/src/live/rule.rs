//! Device rules of records, each with what it is for.

use std::path::{Path, PathBuf};

use device_class::device::DeviceRule;
use injection_plan::plan::{Action, InjectionStep};
use serde::{Deserialize, Serialize};

use crate::container::{Resolver, RootDir};

/// A device rule, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) rule: String,
    /// The keys of devices or the class that it is for. None: it stays.
    #[serde(rename = "for")]
    pub(crate) why: Vec<String>,
    /// The host's node of the device when the rule was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<HostNode>,
    /// Whether it was added for what was attached: what the specification allows of the device
    /// beside it stays when it is revoked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) beside_spec: bool,
}

/// A device node of the host: a device that is connected later has another one, also if its path
/// and its number are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostNode {
    path: PathBuf,
    /// File system, inode and device number.
    identity: [u64; 3],
}

impl HostNode {
    fn find(root: &Path, path: &Path) -> Option<Self> {
        Some(HostNode {
            identity: identity(root, path)?,
            path: path.to_owned(),
        })
    }

    /// The node that has its path now.
    pub(super) fn now(&self, root: &Path) -> Option<Self> {
        Self::find(root, &self.path)
    }

    /// Whether the host has it no more, or another one at its path.
    pub(super) fn is_gone(&self, root: &Path) -> bool {
        identity(root, &self.path) != Some(self.identity)
    }
}

/// The identity of the device node to which a path of the host leads, if it does.
fn identity(root: &Path, path: &Path) -> Option<[u64; 3]> {
    let root = RootDir::open(root, Resolver::Walk).ok()?;
    let node = root.lookup(path).ok()??;
    node.kind().is_device().then(|| node.identity().numbers())
}

/// Adds the host's nodes to rules, as steps have them, of the host whose root is at `root`.
pub(super) fn note_host_nodes(rules: &mut [Rule], steps: &[InjectionStep], root: &Path) {
    for rule in rules {
        let number = DeviceRule::parse(&rule.rule).map(|rule| rule.number);
        let source = steps.iter().find_map(|step| match &step.action {
            Action::Node {
                mount, number: of, ..
            } if Some(*of) == number => Some(&mount.source),
            _ => None,
        });
        rule.host = source.and_then(|source| HostNode::find(root, source));
    }
}

impl Rule {
    /// A rule that is for what a step is for.
    pub(super) fn of(rule: DeviceRule, step: &InjectionStep) -> Self {
        Rule {
            rule: rule.to_string(),
            why: step.users.clone(),
            host: None,
            beside_spec: false,
        }
    }
}

/// Rules without what they are for.
pub(crate) fn parsed(rules: &[Rule]) -> Vec<DeviceRule> {
    let rules = rules.iter();
    rules
        .filter_map(|rule| DeviceRule::parse(&rule.rule))
        .collect()
}

/// The rules of steps, with the devices that they are for.
pub(super) fn rules_of_steps(steps: &[InjectionStep]) -> impl Iterator<Item = Rule> {
    steps.iter().filter_map(|step| match &step.action {
        Action::Allow { rule, .. } => Some(Rule::of(*rule, step)),
        _ => None,
    })
}

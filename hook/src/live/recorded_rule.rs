//! AttachedDevice rules of records, each with what it is for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::device::{Access, DeviceRule};
use injection_plan::plan::{Action, InjectionStep};
use serde::{Deserialize, Serialize};

use crate::container::{Resolver, RootDir};

/// A device rule, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedRule {
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

    /// Whether the path has no device node on the host now, or one with another number.
    pub(super) fn has_other_number(&self, root: &Path) -> bool {
        let [_, _, number] = self.identity;
        self.now(root).is_none_or(|now| now.identity[2] != number)
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
pub(super) fn note_host_nodes(rules: &mut [RecordedRule], steps: &[InjectionStep], root: &Path) {
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

impl RecordedRule {
    /// A rule that is for what a step is for.
    pub(super) fn of(rule: DeviceRule, step: &InjectionStep) -> Self {
        RecordedRule {
            rule: rule.to_string(),
            why: step.users.clone(),
            host: None,
            beside_spec: false,
        }
    }
}

/// Rules without what they are for.
pub(crate) fn parsed(rules: &[RecordedRule]) -> Vec<DeviceRule> {
    let rules = rules.iter();
    rules
        .filter_map(|rule| DeviceRule::parse(&rule.rule))
        .collect()
}

/// Returns the rules of steps, with the devices that need them: one rule for each access that any
/// of a device node's users needs, so that the rule of a user who goes can be revoked alone.
pub(super) fn rules_of_steps(steps: &[InjectionStep]) -> impl Iterator<Item = RecordedRule> {
    steps.iter().flat_map(|step| match &step.action {
        Action::Allow {
            rule,
            users_by_access,
            ..
        } => split_by_access(*rule, users_by_access, step),
        _ => Vec::new(),
    })
}

fn split_by_access(
    rule: DeviceRule,
    users_by_access: &BTreeMap<Access, Vec<String>>,
    step: &InjectionStep,
) -> Vec<RecordedRule> {
    if users_by_access.is_empty() {
        return vec![RecordedRule::of(rule, step)];
    }
    let rules = users_by_access.iter().map(|(access, users)| RecordedRule {
        why: users.clone(),
        ..RecordedRule::of(
            DeviceRule {
                access: *access,
                ..rule
            },
            step,
        )
    });
    rules.collect()
}

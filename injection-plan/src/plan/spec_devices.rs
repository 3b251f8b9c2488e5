//! The device nodes and device rules that config.json has before the injection.

use std::path::{Path, PathBuf};

use device_class::device::{Access, DeviceKind, DeviceNumber, DeviceRule};

/// The devices of a container in its config.json: `linux.devices` and `linux.resources.devices`
/// (OCI runtime specification, config-linux).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecDevices {
    /// The device nodes that the runtime creates.
    pub nodes: Vec<SpecNode>,
    /// The device rules that the runtime sets. A later rule overrides an earlier one.
    pub rules: Vec<SpecRule>,
    /// The mount points at and below /dev. /dev itself is left out if config.json mounts a new
    /// tmpfs there.
    pub mount_points: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecNode {
    /// The path in the container.
    pub path: PathBuf,
    pub number: DeviceNumber,
}

/// A device rule of config.json, which the runtime applies. A field that is `None` matches every
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecRule {
    pub is_allowed: bool,
    pub kind: Option<DeviceKind>,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub access: Access,
}

impl SpecDevices {
    pub(super) fn has_node(&self, path: &Path, number: DeviceNumber) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|node| node.path == path && node.number == number)
    }

    /// Describes the node or mount of config.json that prevents a device node at `path`, where a
    /// request wants to place one. Returns `None` if config.json has nothing at this path, or a
    /// node with the same `number`. `number` is `None` for a device that the host does not have
    /// yet.
    pub(super) fn describe_conflicting_entry(
        &self,
        path: &Path,
        number: Option<DeviceNumber>,
    ) -> Option<String> {
        let mut nodes = self.nodes.iter();
        if let Some(node) = nodes.find(|node| node.path == path && Some(node.number) != number) {
            return Some(format!("config.json has {} there", node.number));
        }
        let mut mount_points = self.mount_points.iter();
        let mount_point = mount_points.find(|mount_point| path.starts_with(mount_point))?;
        Some(format!("config.json mounts {}", mount_point.display()))
    }

    /// Returns whether config.json allows all access that `requested_rule` allows. For each kind of
    /// access (read, write, mknod), the last matching rule of config.json applies.
    pub(super) fn allows(&self, requested_rule: &DeviceRule) -> bool {
        requested_rule.access.iter().all(|access| {
            let mut rules = self.rules.iter().rev();
            let last_rule = rules.find(|rule| rule.matches(requested_rule.number, access));
            last_rule.is_some_and(|rule| rule.is_allowed)
        })
    }
}

impl SpecDevices {
    /// Returns whether config.json has a rule that allows exactly this device number, without
    /// wildcards.
    pub fn has_exact_rule(&self, number: DeviceNumber) -> bool {
        self.find_exact_rules(number).next().is_some()
    }

    /// Returns whether config.json allows the container to read and write every character device,
    /// as it does for a privileged container. Returns false if it denies any of them.
    pub fn allows_every_device(&self) -> bool {
        let rules = self.rules.iter().rev();
        let mut device_rules =
            rules.filter(|rule| rule.kind.is_none_or(|kind| kind == DeviceKind::Character));
        let is_decisive = |rule: &&SpecRule| {
            let has_wildcards = rule.major.is_none() && rule.minor.is_none();
            !rule.is_allowed || has_wildcards && rule.access.contains(Access::default())
        };
        device_rules
            .find(is_decisive)
            .is_some_and(|rule| rule.is_allowed)
    }

    /// Returns the rules of config.json that allow exactly this device number, without wildcards.
    pub fn find_exact_rules(&self, number: DeviceNumber) -> impl Iterator<Item = DeviceRule> {
        let (major, minor) = (Some(number.major), Some(number.minor));
        let is_exact = move |rule: &&SpecRule| {
            rule.kind == Some(number.kind) && (rule.major, rule.minor) == (major, minor)
        };
        let rules = self.rules.iter().filter(|rule| rule.is_allowed);
        rules.filter(is_exact).map(move |rule| DeviceRule {
            number,
            access: rule.access,
        })
    }
}

impl SpecRule {
    fn matches(&self, number: DeviceNumber, access: Access) -> bool {
        self.kind.is_none_or(|kind| kind == number.kind)
            && self.major.is_none_or(|major| major == number.major)
            && self.minor.is_none_or(|minor| minor == number.minor)
            && self.access.contains(access)
    }
}

impl From<&DeviceRule> for SpecRule {
    fn from(rule: &DeviceRule) -> Self {
        Self {
            is_allowed: true,
            kind: Some(rule.number.kind),
            major: Some(rule.number.major),
            minor: Some(rule.number.minor),
            access: rule.access,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeviceKind::{Block, Character};

    fn rule(
        is_allowed: bool,
        kind: Option<DeviceKind>,
        number: [Option<u32>; 2],
        access: &str,
    ) -> SpecRule {
        SpecRule {
            is_allowed,
            kind,
            major: number[0],
            minor: number[1],
            access: Access::parse(access).unwrap(),
        }
    }

    #[test]
    fn the_last_rule_for_a_device_and_a_letter_counts() {
        let nothing = || rule(false, None, [None; 2], "rwm");
        let device = |is_allowed, minor, access| {
            let number = [Some(10), Some(minor)];
            rule(is_allowed, Some(Character), number, access)
        };
        let block = rule(true, Some(Block), [Some(10), Some(183)], "rw");
        let driver = rule(true, Some(Character), [Some(10), None], "rwm");
        let wanted = DeviceRule::new(Character, 10, 183, Access::default());
        for (rules, allowed) in [
            (vec![], false),
            (vec![nothing()], false),
            (vec![nothing(), device(true, 183, "rw")], true),
            (vec![nothing(), driver], true),
            (vec![rule(true, None, [None; 2], "rwm")], true),
            (vec![nothing(), device(true, 183, "r")], false),
            (vec![nothing(), block], false),
            (vec![nothing(), device(true, 184, "rw")], false),
            (vec![device(true, 183, "rw"), nothing()], false),
            (
                vec![
                    device(true, 183, "r"),
                    device(true, 183, "w"),
                    device(false, 183, "m"),
                ],
                true,
            ),
        ] {
            let spec = SpecDevices {
                nodes: vec![],
                mount_points: vec![],
                rules,
            };
            assert_eq!(spec.allows(&wanted), allowed, "{spec:?}");
        }
    }

    #[test]
    fn every_device_is_allowed_if_no_later_rule_denies_one() {
        let all = |is_allowed, kind, access| rule(is_allowed, kind, [None; 2], access);
        let deny = || all(false, None, "rwm");
        let driver = |is_allowed| rule(is_allowed, Some(Character), [Some(188), None], "rw");
        for (rules, allowed) in [
            (vec![], false),
            (vec![deny()], false),
            (vec![all(true, None, "rwm")], true),
            (vec![deny(), all(true, Some(Character), "rw")], true),
            (vec![deny(), all(true, Some(Block), "rw")], false),
            (vec![deny(), all(true, None, "r")], false),
            (vec![deny(), driver(true)], false),
            (vec![all(true, None, "rwm"), driver(true)], true),
            (vec![all(true, None, "rwm"), driver(false)], false),
            (vec![all(true, None, "rwm"), deny()], false),
        ] {
            let spec = SpecDevices {
                rules,
                ..SpecDevices::default()
            };
            assert_eq!(spec.allows_every_device(), allowed, "{spec:?}");
        }
    }
}

//! The device rules that the runtime enforces: those of config.json, followed by its own.
//!
//! They are needed if the kernel hides a device program, which must then be generated again.

pub(super) use injection_plan::plan::SpecRule;

use super::rule::{Access, DeviceKind, DeviceRule};

/// An ordered list of rules. The last matching rule applies, separately for read, write and
/// mknod. An access without a matching rule is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpecRules(Vec<SpecRule>);

/// The rules that every runtime adds after those of config.json, so that a container has a
/// usable `/dev` (runc: `AllowedDevices`, crun: `default_devices`).
///
/// Devices that only some runtimes allow are omitted: `/dev/net/tun` (runc except 1.2.0 to
/// 1.2.3, and old versions of crun) and `/dev/console` (crun).
const RUNTIME_DEFAULTS: &[SpecRule] = &[
    default_rule(DeviceKind::Character, None, None, Access::MKNOD),
    default_rule(DeviceKind::Block, None, None, Access::MKNOD),
    default_rule(DeviceKind::Character, Some(1), Some(3), Access::ALL), // null
    default_rule(DeviceKind::Character, Some(1), Some(5), Access::ALL), // zero
    default_rule(DeviceKind::Character, Some(1), Some(7), Access::ALL), // full
    default_rule(DeviceKind::Character, Some(1), Some(8), Access::ALL), // random
    default_rule(DeviceKind::Character, Some(1), Some(9), Access::ALL), // urandom
    default_rule(DeviceKind::Character, Some(5), Some(0), Access::ALL), // tty
    default_rule(DeviceKind::Character, Some(5), Some(2), Access::ALL), // ptmx
    default_rule(DeviceKind::Character, Some(136), None, Access::ALL),  // pts/*
];

const fn default_rule(
    kind: DeviceKind,
    major: Option<u32>,
    minor: Option<u32>,
    access: Access,
) -> SpecRule {
    SpecRule {
        allow: true,
        kind: Some(kind),
        major,
        minor,
        access,
    }
}

impl SpecRules {
    /// Returns the rules of config.json, followed by those that the runtime adds.
    pub(crate) fn from_spec(spec: &[SpecRule]) -> Self {
        Self([spec, RUNTIME_DEFAULTS].concat())
    }

    #[must_use]
    pub(crate) fn with_allowed(&self, rules: &[DeviceRule]) -> Self {
        let added = rules.iter().map(SpecRule::from);
        Self(self.0.iter().copied().chain(added).collect())
    }

    #[must_use]
    pub(crate) fn with_denied(&self, rules: &[DeviceRule]) -> Self {
        let added = rules.iter().map(|rule| SpecRule {
            allow: false,
            ..SpecRule::from(rule)
        });
        Self(self.0.iter().copied().chain(added).collect())
    }

    /// Returns those of `rules` whose devices the list allows by a rule for exactly that
    /// device number.
    pub(super) fn find_rules_of_same_devices(&self, rules: &[DeviceRule]) -> Vec<DeviceRule> {
        let is_named = |rule: &&DeviceRule| {
            let wanted = SpecRule::from(*rule);
            let mut known = self.0.iter().filter(|known| known.allow);
            known.any(|known| {
                (known.kind, known.major, known.minor) == (wanted.kind, wanted.major, wanted.minor)
            })
        };
        rules.iter().filter(is_named).copied().collect()
    }

    #[cfg(test)]
    pub(super) fn from_rules(rules: Vec<SpecRule>) -> Self {
        Self(rules)
    }

    /// Returns the rules in their order.
    pub(super) fn rules(&self) -> &[SpecRule] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_rules_come_last() {
        let rule = DeviceRule::new(DeviceKind::Character, 10, 183, Access::READ);
        let rules = SpecRules::from_spec(&[]).with_allowed(&[rule]);
        assert_eq!(rules.rules().last(), Some(&SpecRule::from(&rule)));
    }
}

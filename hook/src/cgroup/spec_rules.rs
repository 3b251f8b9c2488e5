//! Computes the device rules that a runtime enforces. These are the rules of config.json, followed
//! by rules that every runtime adds.
//!
//! They are needed if the kernel hides the instructions of the runtime's device program
//! (`net.core.bpf_jit_harden=2`). Then a new program is generated from these rules.

pub(super) use injection_plan::plan::SpecRule;

use super::rule::{Access, DeviceKind, DeviceRule};

/// An ordered list of device rules. For each access (read, write and mknod), the last rule that
/// matches the device and the access decides. If no rule matches an access, it is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecRules(Vec<SpecRule>);

/// The rules that every runtime adds after those of config.json. They give a container a usable
/// `/dev` (runc: `AllowedDevices`, crun: `default_devices`).
///
/// Devices that only some runtimes allow are left out: `/dev/net/tun` (runc except 1.2.0 to 1.2.3,
/// and old versions of crun) and `/dev/console` (crun).
const RUNTIME_DEFAULT_RULES: &[SpecRule] = &[
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
        is_allowed: true,
        kind: Some(kind),
        major,
        minor,
        access,
    }
}

impl SpecRules {
    /// Creates the list from the rules of config.json. Appends the rules that every runtime adds,
    /// for example for `/dev/null`.
    pub fn from_spec(spec: &[SpecRule]) -> Self {
        Self([spec, RUNTIME_DEFAULT_RULES].concat())
    }

    #[must_use]
    pub(crate) fn with_allowed_rules(&self, rules: &[DeviceRule]) -> Self {
        let added_rules = rules.iter().map(SpecRule::from);
        Self(self.0.iter().copied().chain(added_rules).collect())
    }

    #[must_use]
    pub(crate) fn with_denied_rules(&self, rules: &[DeviceRule]) -> Self {
        let added_rules = rules.iter().map(|rule| SpecRule {
            is_allowed: false,
            ..SpecRule::from(rule)
        });
        Self(self.0.iter().copied().chain(added_rules).collect())
    }

    /// Returns each rule in `rules` for whose device number this list has an allowing rule. A
    /// listed rule with a wildcard, such as `c 136:* rwm`, does not count.
    pub(super) fn retain_rules_with_exact_entry(&self, rules: &[DeviceRule]) -> Vec<DeviceRule> {
        let is_allowed_by_number = |rule: &&DeviceRule| {
            let rule = SpecRule::from(*rule);
            let mut allowing_rules = self.0.iter().filter(|listed| listed.is_allowed);
            allowing_rules.any(|listed| {
                (listed.kind, listed.major, listed.minor) == (rule.kind, rule.major, rule.minor)
            })
        };
        rules.iter().filter(is_allowed_by_number).copied().collect()
    }

    #[cfg(test)]
    pub(super) fn from_rules(rules: Vec<SpecRule>) -> Self {
        Self(rules)
    }

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
        let rules = SpecRules::from_spec(&[]).with_allowed_rules(&[rule]);
        assert_eq!(rules.rules().last(), Some(&SpecRule::from(&rule)));
    }
}

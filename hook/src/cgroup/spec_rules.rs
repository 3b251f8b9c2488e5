//! The rules that the runtime enforces: those of the spec, then its own.
//!
//! They are needed where a device program can't be read back and has to be made
//! again. Runtimes differ in odd corners of the list; the stricter reading is
//! taken, since a hook must not give what the runtime would not have given.

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

use super::rule::{Access, DeviceKind, DeviceRule};

/// An ordered list of rules, the last matching one of which counts, for each of
/// read, write and mknod alone. What no rule matches is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecRules(Vec<SpecRule>);

/// One rule of the list; `None` matches everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpecRule {
    pub(super) allow: bool,
    pub(super) kind: Option<DeviceKind>,
    pub(super) major: Option<u32>,
    pub(super) minor: Option<u32>,
    pub(super) access: Access,
}

/// What every runtime allows after the spec's rules, so that a container has a
/// usable `/dev` (runc: `AllowedDevices`, crun: `default_devices`).
///
/// Left out is what only some of them allow: `/dev/net/tun` (runc, but for 1.2.0
/// to 1.2.3; crun no longer) and `/dev/console` (crun).
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
    /// The rules that a runtime makes of the spec's `linux.resources.devices`.
    ///
    /// Never fails: the runtime has accepted the list already. Of an entry that
    /// makes no sense, a denial counts for all that it could mean, and a
    /// permission for nothing.
    pub fn of_container<'a>(spec: impl IntoIterator<Item = &'a LinuxDeviceCgroup>) -> Self {
        let spec = spec.into_iter().filter_map(SpecRule::of_spec);
        Self(spec.chain(RUNTIME_DEFAULTS.iter().copied()).collect())
    }

    /// The list with permissions added at its end.
    #[must_use]
    pub(super) fn and_allow(&self, rules: &[DeviceRule]) -> Self {
        let added = rules.iter().map(SpecRule::from);
        Self(self.0.iter().copied().chain(added).collect())
    }

    #[cfg(test)]
    pub(super) fn of_list(rules: Vec<SpecRule>) -> Self {
        Self(rules)
    }

    /// The rules, first to last.
    pub(super) fn rules(&self) -> &[SpecRule] {
        &self.0
    }
}

impl SpecRule {
    fn of_spec(rule: &LinuxDeviceCgroup) -> Option<Self> {
        let letters = rule.access().as_deref().unwrap_or_default();
        let read = if rule.allow() {
            Self::of_permission
        } else {
            Self::of_denial
        };
        read(rule, letters)
    }

    fn of_permission(rule: &LinuxDeviceCgroup, letters: &str) -> Option<Self> {
        let kind = match rule.typ().unwrap_or_default() {
            LinuxDeviceType::A => None,
            LinuxDeviceType::B => Some(DeviceKind::Block),
            LinuxDeviceType::C | LinuxDeviceType::U => Some(DeviceKind::Character),
            LinuxDeviceType::P => return None,
        };
        Some(Self {
            allow: true,
            kind,
            major: number(rule.major()).ok()?,
            minor: number(rule.minor()).ok()?,
            access: letters
                .chars()
                .filter_map(Access::of_letter)
                .reduce(Access::union)?,
        })
    }

    fn of_denial(rule: &LinuxDeviceCgroup, letters: &str) -> Option<Self> {
        let all = Self {
            allow: false,
            kind: None,
            major: None,
            minor: None,
            access: Access::ALL,
        };
        let kind = match rule.typ().unwrap_or_default() {
            // runc and cgroup v1 take `a` to mean everything, whatever follows.
            LinuxDeviceType::A | LinuxDeviceType::P => return Some(all),
            LinuxDeviceType::B => Some(DeviceKind::Block),
            LinuxDeviceType::C | LinuxDeviceType::U => Some(DeviceKind::Character),
        };
        Some(Self {
            kind,
            // A number that no device can have denies no device.
            major: number(rule.major()).ok()?,
            minor: number(rule.minor()).ok()?,
            access: Access::parse(letters).unwrap_or(Access::ALL),
            ..all
        })
    }
}

impl From<&DeviceRule> for SpecRule {
    fn from(rule: &DeviceRule) -> Self {
        Self {
            allow: true,
            kind: Some(rule.kind()),
            major: Some(rule.major()),
            minor: Some(rule.minor()),
            access: rule.access(),
        }
    }
}

/// A number of the spec; absent or negative is a wildcard.
fn number(number: Option<i64>) -> Result<Option<u32>, std::num::TryFromIntError> {
    match number {
        None | Some(..0) => Ok(None),
        // Programs compare with signed 32-bit constants.
        Some(number) => i32::try_from(number).map(|number| Some(number.cast_unsigned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_json(json: &str) -> Vec<SpecRule> {
        let spec: Vec<LinuxDeviceCgroup> = serde_json::from_str(json).unwrap();
        let rules = SpecRules::of_container(&spec);
        let (own, defaults) = rules.0.split_at(rules.0.len() - RUNTIME_DEFAULTS.len());
        assert_eq!(defaults, RUNTIME_DEFAULTS);
        own.to_vec()
    }

    const DENY_ALL: SpecRule = SpecRule {
        allow: false,
        kind: None,
        major: None,
        minor: None,
        access: Access::ALL,
    };

    #[test]
    fn keeps_order_and_wildcards() {
        let rules = of_json(
            r#"[{"allow":false,"access":"rwm"},
                {"allow":true,"type":"c","major":195,"minor":-1,"access":"rw"},
                {"allow":false,"type":"b","major":8,"minor":0,"access":"w"}]"#,
        );
        let expected = [
            DENY_ALL,
            default_rule(
                DeviceKind::Character,
                Some(195),
                None,
                Access::parse("rw").unwrap(),
            ),
            SpecRule {
                kind: Some(DeviceKind::Block),
                major: Some(8),
                minor: Some(0),
                access: Access::WRITE,
                ..DENY_ALL
            },
        ];
        assert_eq!(rules, expected);
    }

    #[test]
    fn reads_doubtful_denials_wide_and_permissions_narrow() {
        for (json, expected) in [
            (
                r#"[{"allow":false,"type":"a","major":1,"access":"r"}]"#,
                Some(DENY_ALL),
            ),
            (
                r#"[{"allow":false,"type":"p","access":"r"}]"#,
                Some(DENY_ALL),
            ),
            (
                r#"[{"allow":false,"type":"c","major":1,"minor":3,"access":"rx"}]"#,
                Some(SpecRule {
                    allow: false,
                    ..default_rule(DeviceKind::Character, Some(1), Some(3), Access::ALL)
                }),
            ),
            (
                r#"[{"allow":true,"type":"c","major":1,"minor":3,"access":"rx"}]"#,
                Some(default_rule(
                    DeviceKind::Character,
                    Some(1),
                    Some(3),
                    Access::READ,
                )),
            ),
            (r#"[{"allow":true,"type":"c","major":1,"minor":3}]"#, None),
            (r#"[{"allow":true,"type":"p","access":"r"}]"#, None),
            (
                r#"[{"allow":true,"type":"c","major":4294967295,"access":"r"}]"#,
                None,
            ),
            (
                r#"[{"allow":false,"type":"c","major":4294967295,"access":"r"}]"#,
                None,
            ),
        ] {
            assert_eq!(of_json(json), Vec::from_iter(expected), "{json}");
        }
    }

    #[test]
    fn added_rules_come_last() {
        let rule = DeviceRule::new(DeviceKind::Character, 10, 183, Access::READ).unwrap();
        let rules = SpecRules::of_container([]).and_allow(&[rule]);
        assert_eq!(rules.rules().last(), Some(&SpecRule::from(&rule)));
    }
}

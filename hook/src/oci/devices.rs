//! Converts the device rules and nodes of config.json (OCI runtime specification,
//! config-linux) to the types of the injection plan, and back.
//!
//! Runtimes differ in rare forms of a rule. The stricter interpretation is used, because the
//! hook must not allow an access that the runtime would deny.

use device_class::device::{Access, DeviceKind, DeviceNumber};
use injection_plan::plan::{SpecNode, SpecRule};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};

/// Returns the rules of `linux.resources.devices` as a runtime applies them.
///
/// The conversion never fails, because the runtime has accepted the list already. An invalid
/// entry that denies counts for every device that it could mean. An invalid entry that allows
/// is ignored.
pub(crate) fn rules(spec: &[LinuxDeviceCgroup]) -> Vec<SpecRule> {
    spec.iter().filter_map(rule).collect()
}

/// Returns the nodes that a runtime creates for `linux.devices`.
pub(crate) fn nodes(spec: &[LinuxDevice]) -> Vec<SpecNode> {
    let node = |device: &LinuxDevice| {
        Some(SpecNode {
            path: device.path().clone(),
            number: DeviceNumber {
                kind: kind(device.typ())?,
                major: device.major().try_into().ok()?,
                minor: device.minor().try_into().ok()?,
            },
        })
    };
    spec.iter().filter_map(node).collect()
}

/// Returns a rule in the form of config.json.
pub(crate) fn to_oci_rule(rule: impl Into<SpecRule>) -> LinuxDeviceCgroup {
    let rule = rule.into();
    let kind = match rule.kind {
        None => LinuxDeviceType::A,
        Some(DeviceKind::Character) => LinuxDeviceType::C,
        Some(DeviceKind::Block) => LinuxDeviceType::B,
    };
    let mut written = LinuxDeviceCgroup::default();
    written
        .set_allow(rule.allow)
        .set_typ(Some(kind))
        .set_major(rule.major.map(i64::from))
        .set_minor(rule.minor.map(i64::from))
        .set_access(Some(rule.access.to_string()));
    written
}

fn rule(rule: &LinuxDeviceCgroup) -> Option<SpecRule> {
    let letters = rule.access().as_deref().unwrap_or_default();
    if rule.allow() {
        parse_permission(rule, letters)
    } else {
        parse_denial(rule, letters)
    }
}

fn parse_permission(rule: &LinuxDeviceCgroup, letters: &str) -> Option<SpecRule> {
    let kind = match rule.typ().unwrap_or_default() {
        LinuxDeviceType::A => None,
        one => Some(kind(one)?),
    };
    Some(SpecRule {
        allow: true,
        kind,
        major: parse_number(rule.major()).ok()?,
        minor: parse_number(rule.minor()).ok()?,
        access: letters
            .chars()
            .filter_map(Access::of_letter)
            .reduce(Access::union)?,
    })
}

fn parse_denial(rule: &LinuxDeviceCgroup, letters: &str) -> Option<SpecRule> {
    let all = SpecRule {
        allow: false,
        kind: None,
        major: None,
        minor: None,
        access: Access::ALL,
    };
    // runc and cgroup v1 interpret `a` as every device, regardless of the numbers.
    let Some(kind) = kind(rule.typ().unwrap_or_default()) else {
        return Some(all);
    };
    Some(SpecRule {
        kind: Some(kind),
        // A number that no device can have denies no device.
        major: parse_number(rule.major()).ok()?,
        minor: parse_number(rule.minor()).ok()?,
        access: Access::parse(letters).unwrap_or(Access::ALL),
        ..all
    })
}

/// Returns the kind of a device, or `None` if the type does not mean a single kind.
fn kind(kind: LinuxDeviceType) -> Option<DeviceKind> {
    match kind {
        // `u` (unbuffered) is another word of mknod(1) for a character device.
        LinuxDeviceType::C | LinuxDeviceType::U => Some(DeviceKind::Character),
        LinuxDeviceType::B => Some(DeviceKind::Block),
        LinuxDeviceType::A | LinuxDeviceType::P => None,
    }
}

/// Parses a device number. An absent or negative number is a wildcard.
fn parse_number(number: Option<i64>) -> Result<Option<u32>, std::num::TryFromIntError> {
    match number {
        None | Some(..0) => Ok(None),
        // Device programs compare with signed 32-bit constants.
        Some(number) => i32::try_from(number).map(|number| Some(number.cast_unsigned())),
    }
}

#[cfg(test)]
mod tests {
    use device_class::device::DeviceRule;

    use super::*;

    fn of_json(json: &str) -> Vec<SpecRule> {
        let spec: Vec<LinuxDeviceCgroup> = serde_json::from_str(json).unwrap();
        rules(&spec)
    }

    const DENY_ALL: SpecRule = SpecRule {
        allow: false,
        kind: None,
        major: None,
        minor: None,
        access: Access::ALL,
    };

    fn allow(major: u32, minor: Option<u32>, access: &str) -> SpecRule {
        SpecRule {
            allow: true,
            kind: Some(DeviceKind::Character),
            major: Some(major),
            minor,
            access: Access::parse(access).unwrap(),
        }
    }

    #[test]
    fn keeps_order_and_wildcards() {
        let rules = of_json(
            r#"[{"allow":false,"access":"rwm"},
                {"allow":true,"type":"c","major":195,"minor":-1,"access":"rw"},
                {"allow":true,"type":"u","major":195,"minor":1,"access":"r"},
                {"allow":false,"type":"b","major":8,"minor":0,"access":"w"}]"#,
        );
        let expected = [
            DENY_ALL,
            allow(195, None, "rw"),
            allow(195, Some(1), "r"),
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
                    ..allow(1, Some(3), "rwm")
                }),
            ),
            (
                r#"[{"allow":true,"type":"c","major":1,"minor":3,"access":"rx"}]"#,
                Some(allow(1, Some(3), "r")),
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
    fn what_is_written_is_read_as_the_same_rule() {
        let rule = DeviceRule::new(DeviceKind::Block, 8, 1, Access::default());
        assert_eq!(rules(&[to_oci_rule(&rule)]), [SpecRule::from(&rule)]);
        for rule in [DENY_ALL, allow(10, None, "rw"), allow(10, Some(1), "m")] {
            assert_eq!(rules(&[to_oci_rule(rule)]), [rule]);
        }
    }
}

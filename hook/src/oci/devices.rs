//! Converts the device rules and device nodes of config.json (OCI runtime specification,
//! config-linux) to the types of the injection plan, and back.
//!
//! Runtimes do not agree on the meaning of rare forms of a rule. This module uses the strictest
//! meaning, because the hook must not allow an access that the runtime denies.

use device_class::device::{Access, DeviceKind, DeviceNumber};
use injection_plan::plan::{SpecNode, SpecRule};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};

/// Converts `linux.resources.devices` of config.json to the device rules that a runtime applies.
///
/// The conversion never fails, because the runtime has accepted the list already. An invalid entry
/// that denies access is read as strictly as possible: it denies the access for every device that
/// it could mean. An invalid entry that allows access is ignored.
pub(crate) fn convert_rules(spec_rules: &[LinuxDeviceCgroup]) -> Vec<SpecRule> {
    spec_rules.iter().filter_map(convert_rule).collect()
}

/// Converts `linux.devices` of config.json to the device nodes that a runtime creates. Ignores
/// entries that are not device nodes, such as FIFOs.
pub(crate) fn convert_nodes(spec_devices: &[LinuxDevice]) -> Vec<SpecNode> {
    let convert_node = |device: &LinuxDevice| {
        Some(SpecNode {
            path: device.path().clone(),
            number: DeviceNumber {
                kind: to_device_kind(device.typ())?,
                major: device.major().try_into().ok()?,
                minor: device.minor().try_into().ok()?,
            },
        })
    };
    spec_devices.iter().filter_map(convert_node).collect()
}

/// Converts a device rule to an entry of `linux.resources.devices` in config.json. An entry without
/// a major or minor number matches every number.
pub(crate) fn to_oci_rule(rule: impl Into<SpecRule>) -> LinuxDeviceCgroup {
    let rule = rule.into();
    let kind = match rule.kind {
        None => LinuxDeviceType::A,
        Some(DeviceKind::Character) => LinuxDeviceType::C,
        Some(DeviceKind::Block) => LinuxDeviceType::B,
    };
    let mut oci_rule = LinuxDeviceCgroup::default();
    oci_rule
        .set_allow(rule.is_allowed)
        .set_typ(Some(kind))
        .set_major(rule.major.map(i64::from))
        .set_minor(rule.minor.map(i64::from))
        .set_access(Some(rule.access.to_string()));
    oci_rule
}

fn convert_rule(rule: &LinuxDeviceCgroup) -> Option<SpecRule> {
    let access_letters = rule.access().as_deref().unwrap_or_default();
    if rule.allow() {
        convert_allow_rule(rule, access_letters)
    } else {
        convert_deny_rule(rule, access_letters)
    }
}

fn convert_allow_rule(rule: &LinuxDeviceCgroup, access_letters: &str) -> Option<SpecRule> {
    let kind = match rule.typ().unwrap_or_default() {
        LinuxDeviceType::A => None,
        single_kind => Some(to_device_kind(single_kind)?),
    };
    Some(SpecRule {
        is_allowed: true,
        kind,
        major: parse_device_number(rule.major()).ok()?,
        minor: parse_device_number(rule.minor()).ok()?,
        access: access_letters
            .chars()
            .filter_map(Access::from_letter)
            .reduce(Access::union)?,
    })
}

fn convert_deny_rule(rule: &LinuxDeviceCgroup, access_letters: &str) -> Option<SpecRule> {
    let all_devices = SpecRule {
        is_allowed: false,
        kind: None,
        major: None,
        minor: None,
        access: Access::ALL,
    };
    // With the type `a` (all devices), runc and cgroup v1 ignore the device numbers. So such an
    // entry denies every device.
    let Some(kind) = to_device_kind(rule.typ().unwrap_or_default()) else {
        return Some(all_devices);
    };
    Some(SpecRule {
        kind: Some(kind),
        // A rule whose number is too large for a device matches no device, so it is left out.
        major: parse_device_number(rule.major()).ok()?,
        minor: parse_device_number(rule.minor()).ok()?,
        access: Access::parse(access_letters).unwrap_or(Access::ALL),
        ..all_devices
    })
}

/// Returns the device kind for a type in config.json. Returns `None` for `a` (all devices) and `p`
/// (FIFO).
fn to_device_kind(kind: LinuxDeviceType) -> Option<DeviceKind> {
    match kind {
        // `u` (unbuffered) is another letter for a character device, as in mknod(1).
        LinuxDeviceType::C | LinuxDeviceType::U => Some(DeviceKind::Character),
        LinuxDeviceType::B => Some(DeviceKind::Block),
        LinuxDeviceType::A | LinuxDeviceType::P => None,
    }
}

/// Converts a major or minor number of config.json. Returns `None`, which matches every number, if
/// the number is missing or negative. Fails if it does not fit into a signed 32-bit number.
fn parse_device_number(number: Option<i64>) -> Result<Option<u32>, std::num::TryFromIntError> {
    match number {
        None | Some(..0) => Ok(None),
        // A constant in an eBPF device program has 32 bits and a sign, so the program cannot
        // compare with a larger number.
        Some(number) => i32::try_from(number).map(|number| Some(number.cast_unsigned())),
    }
}

#[cfg(test)]
mod tests {
    use device_class::device::DeviceRule;

    use super::*;

    fn of_json(json: &str) -> Vec<SpecRule> {
        let spec: Vec<LinuxDeviceCgroup> = serde_json::from_str(json).unwrap();
        convert_rules(&spec)
    }

    const DENY_ALL: SpecRule = SpecRule {
        is_allowed: false,
        kind: None,
        major: None,
        minor: None,
        access: Access::ALL,
    };

    fn allow(major: u32, minor: Option<u32>, access: &str) -> SpecRule {
        SpecRule {
            is_allowed: true,
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
                    is_allowed: false,
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
        assert_eq!(
            convert_rules(&[to_oci_rule(&rule)]),
            [SpecRule::from(&rule)]
        );
        for rule in [DENY_ALL, allow(10, None, "rw"), allow(10, Some(1), "m")] {
            assert_eq!(convert_rules(&[to_oci_rule(rule)]), [rule]);
        }
    }
}

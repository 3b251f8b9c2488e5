//! What a container's spec grants already.

use std::path::Path;

use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};

use crate::class::Access;
use crate::host::{DeviceKind, DeviceNumber};

/// The parts of a spec that grant devices: `linux.devices` and
/// `linux.resources.devices` (OCI runtime spec, config-linux).
#[derive(Debug, Clone, Default)]
pub struct Granted {
    /// The nodes that the runtime makes.
    pub nodes: Vec<LinuxDevice>,
    /// The rules that the runtime sets. A later one overrides an earlier one.
    pub rules: Vec<LinuxDeviceCgroup>,
}

impl Granted {
    /// Whether the runtime makes this very node.
    pub(super) fn has_node(&self, path: &Path, number: DeviceNumber) -> bool {
        self.nodes.iter().any(|node| {
            node.path() == path
                && kind_fits(Some(node.typ()), number.kind)
                && node.major() == i64::from(number.major)
                && node.minor() == i64::from(number.minor)
        })
    }

    /// Whether the runtime allows all of `access` to a device.
    pub(super) fn allows(&self, number: DeviceNumber, access: Access) -> bool {
        let each = [(access.read, 'r'), (access.write, 'w'), (access.mknod, 'm')];
        each.into_iter()
            .filter(|(wanted, _)| *wanted)
            .all(|(_, letter)| {
                let last = self.rules.iter().rev().find(|rule| {
                    let named = rule.access().as_deref().unwrap_or("rwm");
                    named.contains(letter)
                        && kind_fits(rule.typ(), number.kind)
                        && number_fits(rule.major(), number.major)
                        && number_fits(rule.minor(), number.minor)
                });
                last.is_some_and(LinuxDeviceCgroup::allow)
            })
    }
}

fn kind_fits(kind: Option<LinuxDeviceType>, wanted: DeviceKind) -> bool {
    match kind {
        None | Some(LinuxDeviceType::A) => true,
        Some(LinuxDeviceType::C | LinuxDeviceType::U) => wanted == DeviceKind::Character,
        Some(LinuxDeviceType::B) => wanted == DeviceKind::Block,
        Some(LinuxDeviceType::P) => false,
    }
}

/// Nothing, or a negative number, stands for every number.
fn number_fits(rule: Option<i64>, number: u32) -> bool {
    rule.is_none_or(|rule| rule < 0 || rule == i64::from(number))
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::LinuxDeviceCgroupBuilder;

    use super::*;

    fn rule(
        allow: bool,
        kind: LinuxDeviceType,
        number: [i64; 2],
        access: &str,
    ) -> LinuxDeviceCgroup {
        let [major, minor] = number;
        let rule = LinuxDeviceCgroupBuilder::default()
            .allow(allow)
            .typ(kind)
            .major(major)
            .minor(minor)
            .access(access);
        rule.build().unwrap()
    }

    #[test]
    fn the_last_rule_for_a_device_and_a_letter_counts() {
        use LinuxDeviceType::{A, B, C};
        let nothing = || rule(false, A, [-1, -1], "rwm");
        let number = DeviceNumber {
            kind: DeviceKind::Character,
            major: 10,
            minor: 183,
        };
        let access = Access {
            read: true,
            write: true,
            mknod: false,
        };
        for (rules, allowed) in [
            (vec![], false),
            (vec![nothing()], false),
            (vec![nothing(), rule(true, C, [10, 183], "rw")], true),
            (vec![nothing(), rule(true, C, [10, -1], "rwm")], true),
            (vec![rule(true, A, [-1, -1], "rwm")], true),
            (vec![nothing(), rule(true, C, [10, 183], "r")], false),
            (vec![nothing(), rule(true, B, [10, 183], "rw")], false),
            (vec![nothing(), rule(true, C, [10, 184], "rw")], false),
            (vec![rule(true, C, [10, 183], "rw"), nothing()], false),
            (
                vec![
                    rule(true, C, [10, 183], "r"),
                    rule(true, C, [10, 183], "w"),
                    rule(false, C, [10, 183], "m"),
                ],
                true,
            ),
        ] {
            let granted = Granted {
                nodes: vec![],
                rules: rules.clone(),
            };
            assert_eq!(granted.allows(number, access), allowed, "{rules:?}");
        }
    }
}

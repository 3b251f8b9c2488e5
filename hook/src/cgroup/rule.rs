//! Merges device rules. A device rule consists of a device number and the allowed access, such as
//! `c 10:183 rw`.

pub(crate) use device_class::device::{Access, DeviceKind, DeviceRule};

/// Merges `rules` to one rule for each device, with the access letters of all its rules. A check of
/// two rules `r` and `w` would not test an open for reading and writing (`rw`). In `DeviceAllow=`
/// of systemd, the second rule would replace the first.
pub(super) fn merge_by_device(rules: &[DeviceRule]) -> Vec<DeviceRule> {
    let mut merged_rules: Vec<DeviceRule> = Vec::with_capacity(rules.len());
    for rule in rules {
        match merged_rules
            .iter_mut()
            .find(|merged_rule| merged_rule.number == rule.number)
        {
            Some(merged_rule) => merged_rule.access = merged_rule.access.union(rule.access),
            None => merged_rules.push(*rule),
        }
    }
    merged_rules
}

/// Returns a rule for the device `c 10:MINOR`, one of the kernel's misc devices. Only tests call
/// this function.
#[cfg(test)]
pub(super) fn misc(minor: u32, access: &str) -> DeviceRule {
    let access = Access::parse(access).unwrap();
    DeviceRule::new(DeviceKind::Character, 10, minor, access)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_rules_for_the_same_device() {
        let rule =
            |kind, minor, access| DeviceRule::new(kind, 10, minor, Access::parse(access).unwrap());
        let merged = merge_by_device(&[
            rule(DeviceKind::Character, 1, "r"),
            rule(DeviceKind::Character, 2, "r"),
            rule(DeviceKind::Block, 1, "m"),
            rule(DeviceKind::Character, 1, "w"),
        ]);
        let lines: Vec<_> = merged.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["c 10:1 rw", "c 10:2 r", "b 10:1 m"]);
    }
}

//! Checks the names and the group of a device for texts that are the same for every device.

use super::super::DeviceSpec;
use crate::name::is_reserved_name;
use crate::strict_toml::RuleViolation;

/// Checks that `group` in `[device]` can have different values, and that no alias is a reserved
/// word. An alias without an attribute is valid: it means all devices of the class.
pub(super) fn check_device_names(device: &DeviceSpec) -> Result<(), RuleViolation> {
    // The empty text leaves out the group of the class that is extended.
    if let Some(group) = &device.group
        && !group.is_empty_text()
        && group.attributes().next().is_none()
    {
        let group = group.as_str();
        let message = format!(
            "`group` in [device] must be a template that differs between devices, such as \
             \"{{board}}\", because it says which of them belong together, and `{group}` has no \
             attribute; the Unix group of a device node is set in the node's entry: \
             nodes = [{{ path = \"...\", group = \"{group}\" }}]"
        );
        return Err(RuleViolation::new(group, message));
    }
    let mut aliases = device.aliases.iter().map(|alias| alias.as_str());
    match aliases.find(|alias| is_reserved_name(alias)) {
        Some(alias) => {
            let message = format!(
                "the alias `{alias}` is a word that a request uses for all devices or for none; \
                 choose another name"
            );
            Err(RuleViolation::new(alias, message))
        }
        None => Ok(()),
    }
}

//! Explains for `boathook list PATH` why the path leads to no device of this host.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::DeviceClass;
use device_class::discover::{self, Inventory};
use device_class::host::{Entry, HostView};
use device_class::name::excerpt;

/// Returns the error message for a path, such as /dev/ttyUSB0, that leads to no device of a class.
pub(super) fn describe_unlisted_path(
    path: &Path,
    classes: &[DeviceClass],
    host: &dyn HostView,
) -> String {
    let text = excerpt(&path.to_string_lossy());
    match host.entry(path) {
        Ok(Some(_)) => {}
        Ok(None) => {
            return format!(
                "{text} does not exist on this host: connect the device, or load its driver"
            );
        }
        Err(error) => return format!("cannot look up {text}: {error}"),
    }
    describe_class_of_node(path, classes, host).unwrap_or_else(|| {
        format!(
            "{text} is the node of no device of a class of this host: `boathook class new {text}` \
             writes a class file for it"
        )
    })
}

/// Describes how a class uses the node at `path`, if the node belongs to no single device of the
/// class. Returns `None` if no class uses the node.
fn describe_class_of_node(
    path: &Path,
    classes: &[DeviceClass],
    host: &dyn HostView,
) -> Option<String> {
    let node = host.canonicalize(path).ok()?;
    let Ok(Some(Entry::Device(_))) = host.entry(&node) else {
        return None;
    };
    let text = excerpt(&path.to_string_lossy());
    let has_node = |inventory: &Inventory| {
        let nodes = inventory.devices.iter().flat_map(|device| &device.nodes);
        nodes.map(|node| &node.host_path).any(|path| *path == node)
    };
    let shares_node = |class: &&DeviceClass| {
        let no_capabilities = BTreeSet::new();
        let found_class = discover::look_up_class(class, (&no_capabilities).into(), host);
        found_class.is_ok_and(|found_class| {
            let mut shared_nodes = found_class.edits.nodes.iter();
            !found_class.inventory.devices.is_empty()
                && shared_nodes.any(|shared_node| shared_node.host_path == node)
        })
    };
    let sharing_classes = classes.iter().filter(shares_node);
    let names: Vec<&str> = sharing_classes.map(|class| class.name.as_str()).collect();
    if let Some(name) = names.first() {
        let names = names.join(", ");
        return Some(format!(
            "{text} belongs to no single device: a container gets it with each device of the class \
             {names} (`boathook list {name}`)"
        ));
    }
    let hides_node = |class: &&DeviceClass| {
        let mut unfiltered_class = DeviceClass::clone(class);
        unfiltered_class.settings.allowed_devices = None;
        unfiltered_class.settings.hidden_devices.clear();
        has_node(&discover::find_devices(&unfiltered_class, host))
    };
    if let Some(class) = classes.iter().find(hides_node) {
        let name = &class.name;
        return Some(format!(
            "{text} is the node of a device that `only` or `except` in [class.{name}] of \
             config.toml hides"
        ));
    }
    let refuses_node = |class: &&DeviceClass| {
        let mut patterns = class
            .spec
            .discover
            .iter()
            .filter_map(|source| source.path.as_ref());
        patterns.any(|pattern| pattern.matches_path(&node))
    };
    let name = &classes.iter().find(refuses_node)?.name;
    Some(format!(
        "the class {name} leaves {text} out on this host: `boathook class check {name}` says why"
    ))
}

#[cfg(test)]
mod tests {
    use device_class::host::RecordedHost;

    use super::*;

    const HOST: &str = "char /dev/kvm 10:232\nchar /dev/snd/timer 116:33\n\
        char /dev/snd/controlC0 116:1\nchar /dev/tpm0 10:224\nchar /dev/tpmrm0 253:65536\n\
        char /dev/own 240:0\nlink /dev/clock snd/timer\n";

    #[test]
    fn the_class_of_a_node_that_no_device_has_is_named() {
        let host = RecordedHost::parse(HOST).unwrap();
        let classes = [
            (
                "kvm",
                include_str!("../../../device-class/classes/kvm.toml"),
            ),
            (
                "sound",
                include_str!("../../../device-class/classes/sound.toml"),
            ),
            (
                "tpm",
                include_str!("../../../device-class/classes/tpm.toml"),
            ),
        ];
        let classes = classes.map(|(name, text)| {
            let path = format!("{name}.toml");
            let name = name.to_owned().try_into().unwrap();
            DeviceClass::parse(name, path.as_ref(), text).unwrap()
        });
        for (path, expected) in [
            ("/dev/kvm", Some("class check kvm")),
            ("/dev/tpm0", Some("class check tpm")),
            ("/dev/snd/timer", Some("each device of the class sound")),
            ("/dev/clock", Some("each device of the class sound")),
            ("/dev/own", None),
        ] {
            let text = describe_class_of_node(path.as_ref(), &classes, &host);
            let is_expected = match expected {
                Some(part) => text.as_ref().is_some_and(|text| text.contains(part)),
                None => text.is_none(),
            };
            assert!(is_expected, "{path}: {text:?}");
        }
    }
}

//! Implements `boathook list DIRECTORY`, which finds the devices with a node in a directory such as
//! /dev/snd. It also finds the nodes that belong to no class.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::DeviceClass;
use device_class::discover::{Device, FoundClass, Inventory};
use device_class::host::{Entry, HostView};
use device_class::name::excerpt;

use super::class::find_class_new_argument;

/// The maximum number of nodes that the message for a directory lists.
const MAX_LISTED_NODES: usize = 8;

/// The maximum depth of the directories that are searched: /dev/bus/usb/001 is below /dev/bus.
const MAX_DEPTH: usize = 3;

/// Returns the devices of a class that have a node below `directory`, such as /dev/snd, each with
/// its first such node.
pub(super) fn find_devices_below<'i>(
    directory: &Path,
    inventory: &'i Inventory,
) -> impl Iterator<Item = (&'i Device, &'i Path)> {
    inventory.devices.iter().filter_map(move |device| {
        let mut nodes = device.nodes.iter().map(|node| node.host_path.as_path());
        Some((device, nodes.find(|node| node.starts_with(directory))?))
    })
}

/// Describes the nodes below `directory` that belong to none of `classes`. The text contains, for
/// each node, the command that writes a class file. Returns `None` if there are no such nodes.
pub(super) fn describe_unclaimed_nodes(
    directory: &Path,
    classes: &[(DeviceClass, FoundClass)],
    host: &dyn HostView,
) -> Option<String> {
    let nodes = classes.iter().flat_map(|(_, found_class)| {
        let devices = found_class.inventory.devices.iter();
        let device_nodes = devices.flat_map(|device| &device.nodes);
        let nodes = device_nodes.chain(&found_class.edits.nodes);
        nodes.map(|node| node.host_path.clone())
    });
    let claimed_nodes: BTreeSet<PathBuf> = nodes.collect();
    let mut unclaimed_nodes = Vec::new();
    list_nodes(directory, MAX_DEPTH, host, &mut unclaimed_nodes);
    unclaimed_nodes.retain(|node| !claimed_nodes.contains(node));
    // Several USB devices may have the same ids, such as `usb:054c:06c1`. These ids are listed
    // once.
    let targets: BTreeSet<String> = unclaimed_nodes
        .iter()
        .filter_map(|node| find_class_new_argument(node, host))
        .collect();
    let targets: Vec<String> = targets.into_iter().collect();
    let (first, more_targets) = targets.split_first()?;
    let listed_targets = more_targets.iter().take(MAX_LISTED_NODES - 1);
    let mut text = format!("`boathook class new {first}`");
    for target in listed_targets {
        text += &format!(", {target}");
    }
    if targets.len() > MAX_LISTED_NODES {
        text += &format!(" and {} more", targets.len() - MAX_LISTED_NODES);
    }
    Some(format!(
        "no class has these of {}: {text}",
        excerpt(&directory.to_string_lossy())
    ))
}

/// Returns the links in a directory that lead to device nodes, such as those of udev in
/// /dev/serial/by-id.
pub(super) fn list_links(directory: &Path, host: &dyn HostView) -> Vec<PathBuf> {
    let names = host.list(directory).unwrap_or_default().into_iter();
    let paths = names.map(|name| directory.join(name));
    let leads_to_node = |path: &PathBuf| {
        let is_link = host.canonicalize(path).is_ok_and(|target| target != *path);
        is_link && matches!(host.entry(path), Ok(Some(Entry::Device(_))))
    };
    paths.filter(leads_to_node).collect()
}

/// Appends the device nodes in `directory`, and in its subdirectories down to `depth` levels, to
/// `nodes`.
fn list_nodes(directory: &Path, depth: usize, host: &dyn HostView, nodes: &mut Vec<PathBuf>) {
    for name in host.list(directory).unwrap_or_default() {
        let path = directory.join(name);
        // A symbolic link is skipped, because its node is listed at the path of the node.
        if host.canonicalize(&path).is_ok_and(|target| target != path) {
            continue;
        }
        match host.entry(&path) {
            Ok(Some(Entry::Device(_))) => nodes.push(path),
            Ok(Some(Entry::Directory)) if depth > 0 => list_nodes(&path, depth - 1, host, nodes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use device_class::discover;
    use device_class::host::RecordedHost;

    use super::*;

    const HOST: &str = "\
file /sys/bus/usb/devices/usb1/busnum
| 1
file /sys/bus/usb/devices/usb1/devnum
| 1
file /sys/bus/usb/devices/usb1/bDeviceClass
| 09
file /sys/bus/usb/devices/usb1/idVendor
| 1d6b
file /sys/bus/usb/devices/usb1/idProduct
| 0002
file /sys/bus/usb/devices/1-2/busnum
| 1
file /sys/bus/usb/devices/1-2/devnum
| 7
file /sys/bus/usb/devices/1-2/idVendor
| 0bda
file /sys/bus/usb/devices/1-2/idProduct
| 2838
char /dev/bus/usb/001/001 189:0
char /dev/bus/usb/001/007 189:6
char /dev/chip/0 240:0
char /dev/chip/ctl 240:1
char /dev/chip/clock 240:2
link /dev/chip/by-name/first ../0
";

    const CLASS: &str = "version = 1\nresource = 'example.com/chip'\nrequest = { env = 'CHIPS' }\n\
        [[discover]]\npath = '/dev/chip/{index:number}'\n\
        [device]\nid = 'chip-{index}'\nnodes = ['/dev/chip/{index}']\n\
        [[edits]]\nnodes = ['/dev/chip/clock']\n";

    #[test]
    fn nodes_of_a_directory_that_no_class_has_are_named() {
        let host = RecordedHost::parse(HOST).unwrap();
        let name = "chip".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, Path::new("chip.toml"), CLASS).unwrap();
        let found_class = discover::look_up_class(&class, (&BTreeSet::new()).into(), &host);
        let classes = [(class, found_class.unwrap())];
        for (directory, devices, unclaimed) in [
            (
                "/dev/bus/usb",
                "",
                Some("`boathook class new usb:0bda:2838`"),
            ),
            (
                "/dev/chip",
                "chip-0",
                Some("`boathook class new /dev/chip/ctl`"),
            ),
            ("/dev/chip/by-name", "", None),
        ] {
            let directory = Path::new(directory);
            let found = find_devices_below(directory, &classes[0].1.inventory);
            let ids: Vec<&str> = found.map(|(device, _)| device.id.as_str()).collect();
            assert_eq!(ids.join(" "), devices, "{}", directory.display());
            let text = describe_unclaimed_nodes(directory, &classes, &host);
            let command = text.as_deref().and_then(|text| text.rsplit(": ").next());
            // The ids have colons, too, but no blank after them.
            assert_eq!(command, unclaimed, "{text:?}");
        }
    }
}

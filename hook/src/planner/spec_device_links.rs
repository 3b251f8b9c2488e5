//! Keeps devices visible that config.json gives to a container. The plan may mask directories in
//! which the kernel lists devices, such as /sys/class/drm. A mask is a read-only tmpfs over the
//! directory, which contains only selected links.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::device::{DeviceKind, DeviceNumber};
use device_class::discover::is_sysfs_link_directory;
use device_class::host::{Entry, HostView};
use injection_plan::plan::{Action, InjectionPlan, InjectionStep, SpecDevices, StepOwner};

use super::ScannedClass;

const DEV_DIR: &str = "/dev";

/// The maximum number of device nodes that are looked up in directories which config.json mounts,
/// such as `/dev/dri`. Further nodes are ignored.
const MAX_MOUNTED_NODES: usize = 256;

/// The maximum number of files and directories that are looked up in one mounted directory.
const MAX_MOUNTED_ENTRIES: usize = 1024;

/// The maximum depth below a mounted directory. It is enough for `/dev/bus`, with
/// `/dev/bus/usb/001/002`.
const MAX_MOUNTED_DEPTH: usize = 3;

/// Adds links for the devices of config.json to the plan's masks over directories such as
/// /sys/class/drm. Without the link, a mask would hide a GPU that the engine gives to the container
/// (`--device /dev/dri/card1`). If config.json mounts the host's whole /dev, removes these masks,
/// because the container has all device nodes.
pub(super) fn add_links_of_spec_devices(
    plan: &mut InjectionPlan,
    spec: &SpecDevices,
    host: &dyn HostView,
) {
    if spec
        .mount_points
        .iter()
        .any(|path| path == Path::new(DEV_DIR))
    {
        plan.steps.retain(
            |step| !matches!(&step.action, Action::Mask { path, .. } if is_sysfs_link_directory(path)),
        );
        return;
    }
    let mut device_paths = None;
    for step in &mut plan.steps {
        if let Action::Mask { path, links, .. } = &mut step.action
            && is_sysfs_link_directory(path)
        {
            let device_paths =
                device_paths.get_or_insert_with(|| find_spec_device_paths(spec, host));
            add_links(path, device_paths, links, host);
        }
    }
}

/// Adds empty masks to the plan of a running container that had devices of `classes`. If all
/// devices of a class are unplugged, the plan has no mask for the class. But the container already
/// has one, which must no longer list these devices. Adds only masks over directories in which the
/// kernel lists devices, such as /sys/class/drm.
pub(super) fn add_empty_masks<'l>(
    plan: &mut InjectionPlan,
    classes: impl IntoIterator<Item = &'l ScannedClass>,
) {
    for scanned_class in classes {
        let class_owner = StepOwner::Class(scanned_class.class.name.clone());
        for mask in &scanned_class.found.edits.masks {
            let is_planned = plan.steps.iter().any(
                |step| matches!(&step.action, Action::Mask { path, .. } if *path == mask.path),
            );
            if is_planned || !is_sysfs_link_directory(&mask.path) {
                continue;
            }
            let action = Action::Mask {
                path: mask.path.clone(),
                should_create: false,
                files: BTreeMap::new(),
                visible_mounts: Vec::new(),
                links: BTreeMap::new(),
            };
            plan.steps
                .push(InjectionStep::new(action, [class_owner.clone()]));
        }
    }
}

/// The directories of a device below /sys/devices, as absolute paths without symbolic links.
struct DevicePaths {
    /// The directory that describes the node, such as `…/0000:00:02.0/drm/card0`.
    node: PathBuf,
    /// The directory of the hardware to which the node belongs, such as `…/0000:00:02.0`.
    hardware: PathBuf,
}

fn find_spec_device_paths(spec: &SpecDevices, host: &dyn HostView) -> Vec<DevicePaths> {
    let spec_numbers = spec.nodes.iter().map(|node| node.number);
    let mount_points = spec.mount_points.iter();
    let mounted_numbers = mount_points.flat_map(|path| list_device_numbers(path, host));
    let mounted_numbers = mounted_numbers.take(MAX_MOUNTED_NODES);
    let numbers = spec_numbers.chain(mounted_numbers);
    numbers
        .filter_map(|number| find_device_paths(number, host))
        .collect()
}

/// Returns the numbers of the device nodes at a path and below it, such as those below
/// /dev/bus/usb, which has a directory for each bus.
fn list_device_numbers(path: &Path, host: &dyn HostView) -> Vec<DeviceNumber> {
    let mut numbers = Vec::new();
    let mut paths = vec![(path.to_owned(), 0)];
    let mut entry_count = 0;
    while let Some((path, depth)) = paths.pop() {
        entry_count += 1;
        if entry_count > MAX_MOUNTED_ENTRIES {
            break;
        }
        match host.entry(&path) {
            Ok(Some(Entry::Device(number))) => numbers.push(number),
            Ok(Some(Entry::Directory)) if depth < MAX_MOUNTED_DEPTH => {
                let names = host.list(&path).unwrap_or_default();
                paths.extend(names.iter().rev().map(|name| (path.join(name), depth + 1)));
            }
            _ => {}
        }
    }
    numbers
}

fn find_device_paths(number: DeviceNumber, host: &dyn HostView) -> Option<DevicePaths> {
    let kind = match number.kind {
        DeviceKind::Character => "char",
        DeviceKind::Block => "block",
    };
    let DeviceNumber { major, minor, .. } = number;
    let link = PathBuf::from(format!("/sys/dev/{kind}/{major}:{minor}"));
    let node = host.canonicalize(&link).ok()?;
    let hardware = host.canonicalize(&node.join("device"));
    let hardware = hardware.unwrap_or_else(|_| node.clone());
    Some(DevicePaths { node, hardware })
}

/// Adds to `links` the symbolic links in `directory`, such as /sys/class/drm, that belong to one of
/// the devices. Such a link leads to the device's directory in /sys, to a directory above it, or to
/// a directory of the same hardware.
fn add_links(
    directory: &Path,
    device_paths: &[DevicePaths],
    links: &mut BTreeMap<PathBuf, PathBuf>,
    host: &dyn HostView,
) {
    if device_paths.is_empty() {
        return;
    }
    for name in host.list(directory).unwrap_or_default() {
        let link_path = directory.join(name);
        let (Ok(target), Ok(resolved_path)) =
            (host.read_link(&link_path), host.canonicalize(&link_path))
        else {
            continue;
        };
        let leads_to_device = |device: &DevicePaths| {
            device.node.starts_with(&resolved_path) || resolved_path.starts_with(&device.hardware)
        };
        if device_paths.iter().any(leads_to_device) {
            links.insert(link_path, target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use device_class::host::RecordedHost;
    use injection_plan::plan::SpecNode;

    /// Two GPUs, of which the first has a display, and a serial adapter.
    const HOST: &str = "\
link /sys/class/drm/card0 ../../devices/pci/0000:01:00.0/drm/card0
link /sys/class/drm/card1 ../../devices/pci/0000:02:00.0/drm/card1
link /sys/class/drm/renderD129 ../../devices/pci/0000:02:00.0/drm/renderD129
link /sys/class/drm/card1-DP-1 ../../devices/pci/0000:02:00.0/drm/card1/card1-DP-1
dir /sys/devices/pci/0000:01:00.0/drm/card0
dir /sys/devices/pci/0000:02:00.0/drm/card1/card1-DP-1
dir /sys/devices/pci/0000:02:00.0/drm/renderD129
link /sys/devices/pci/0000:01:00.0/drm/card0/device ../../../0000:01:00.0
link /sys/devices/pci/0000:02:00.0/drm/card1/device ../../../0000:02:00.0
link /sys/devices/pci/0000:02:00.0/drm/renderD129/device ../../../0000:02:00.0
link /sys/dev/char/226:1 ../../devices/pci/0000:02:00.0/drm/card1
link /sys/dev/char/226:129 ../../devices/pci/0000:02:00.0/drm/renderD129
char /dev/dri/renderD129 226:129
char /dev/bus/usb/001/003 189:2
link /sys/dev/char/189:2 ../../devices/usb1/1-3
link /sys/bus/usb/devices/1-2 ../../../devices/usb1/1-2
link /sys/bus/usb/devices/1-2:1.0 ../../../devices/usb1/1-2/1-2:1.0
link /sys/bus/usb/devices/1-3 ../../../devices/usb1/1-3
dir /sys/devices/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0
dir /sys/devices/usb1/1-3
link /sys/devices/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0/device ../../../ttyUSB0
link /sys/dev/char/188:0 ../../devices/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0
";

    fn mask(path: &str) -> InjectionStep {
        InjectionStep {
            action: Action::Mask {
                path: path.into(),
                should_create: false,
                files: BTreeMap::new(),
                visible_mounts: Vec::new(),
                links: BTreeMap::new(),
            },
            owner_labels: "gpu".into(),
            owners: Vec::new(),
        }
    }

    #[test]
    fn devices_of_config_json_stay_visible() {
        let host = RecordedHost::parse(HOST).unwrap();
        let gpu = "card1 card1-DP-1 renderD129";
        for (nodes, mount_point, expected) in [
            (
                &[][..],
                None,
                &[("/sys/class/drm", ""), ("/sys/bus/usb/devices", "")][..],
            ),
            (
                &["226:1"],
                None,
                &[("/sys/class/drm", gpu), ("/sys/bus/usb/devices", "")],
            ),
            (
                &["188:0"],
                None,
                &[
                    ("/sys/class/drm", ""),
                    ("/sys/bus/usb/devices", "1-2 1-2:1.0"),
                ],
            ),
            (
                &[],
                Some("/dev/dri"),
                &[("/sys/class/drm", gpu), ("/sys/bus/usb/devices", "")],
            ),
            // The nodes are in subdirectories, one for each bus.
            (
                &[],
                Some("/dev/bus/usb"),
                &[("/sys/class/drm", ""), ("/sys/bus/usb/devices", "1-3")],
            ),
            // A device that the kernel does not have.
            (
                &["250:3"],
                Some("/dev/pts"),
                &[("/sys/class/drm", ""), ("/sys/bus/usb/devices", "")],
            ),
            (&[], Some("/dev"), &[]),
        ] {
            let nodes = nodes.iter().map(|number| {
                let (major, minor) = number.split_once(':').unwrap();
                SpecNode {
                    path: "/dev/x".into(),
                    number: DeviceNumber {
                        kind: DeviceKind::Character,
                        major: major.parse().unwrap(),
                        minor: minor.parse().unwrap(),
                    },
                }
            });
            let spec = SpecDevices {
                nodes: nodes.collect(),
                mount_points: mount_point.map(PathBuf::from).into_iter().collect(),
                ..SpecDevices::default()
            };
            let mut plan = InjectionPlan {
                steps: vec![mask("/sys/class/drm"), mask("/sys/bus/usb/devices")],
                ..InjectionPlan::default()
            };
            add_links_of_spec_devices(&mut plan, &spec, &host);
            let masks = plan.steps.iter().map(|step| {
                let Action::Mask { path, links, .. } = &step.action else {
                    panic!("{step:?}");
                };
                let names = links.keys().map(|link| link.file_name().unwrap().to_str());
                let names: Vec<&str> = names.map(Option::unwrap).collect();
                (path.to_str().unwrap(), names.join(" "))
            });
            let masks: Vec<(&str, String)> = masks.collect();
            let expected = expected
                .iter()
                .map(|(path, names)| (*path, (*names).to_owned()));
            assert_eq!(masks, expected.collect::<Vec<_>>(), "{mount_point:?}");
        }
    }
}

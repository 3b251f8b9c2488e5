//! Keeps the devices that config.json gives to a container visible in the masks of the plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device_class::device::{DeviceKind, DeviceNumber};
use device_class::discover::has_only_links;
use device_class::host::{Entry, HostView};
use injection_plan::plan::{Action, InjectionPlan, InjectionStep, SpecDevices, StepOwner};

use super::ScannedClass;

const DEV_DIR: &str = "/dev";

/// The maximum number of device nodes of mounted directories, such as `/dev/dri`, that are looked
/// up.
const MAX_MOUNTED_NODES: usize = 256;

/// Adds the devices of config.json to the masks over directories in which the kernel lists devices,
/// such as /sys/class/drm: a container can have a GPU of one vendor by the plan and one of another
/// vendor by its engine (`--device /dev/dri/card1`). If the host's whole /dev is mounted, these
/// directories are not masked.
pub(super) fn show_spec_devices(plan: &mut InjectionPlan, spec: &SpecDevices, host: &dyn HostView) {
    if spec
        .mount_points
        .iter()
        .any(|path| path == Path::new(DEV_DIR))
    {
        plan.steps.retain(
            |step| !matches!(&step.action, Action::Mask { path, .. } if has_only_links(path)),
        );
        return;
    }
    let mut device_paths = None;
    for step in &mut plan.steps {
        if let Action::Mask { path, links, .. } = &mut step.action
            && has_only_links(path)
        {
            let device_paths =
                device_paths.get_or_insert_with(|| find_spec_device_paths(spec, host));
            add_links(path, device_paths, links, host);
        }
    }
}

/// Adds to the plan of a running container the masks of `classes`, which the container had devices
/// of, over directories in which the kernel lists devices. Leaves out directories for which the plan
/// has a mask. A plan has no such mask if all these devices are unplugged, but the container's mask
/// must not list them any more.
pub(super) fn add_masks_without_devices<'l>(
    plan: &mut InjectionPlan,
    classes: impl IntoIterator<Item = &'l ScannedClass>,
) {
    for scanned_class in classes {
        let class_owner = StepOwner::Class(scanned_class.class.name.clone());
        for mask in &scanned_class.found.edits.masks {
            let is_planned = plan.steps.iter().any(
                |step| matches!(&step.action, Action::Mask { path, .. } if *path == mask.path),
            );
            if is_planned || !has_only_links(&mask.path) {
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

/// The directories of a device in /sys, with symbolic links resolved.
struct DevicePaths {
    /// The directory that describes the node, such as `…/0000:00:02.0/drm/card0`.
    node: PathBuf,
    /// The directory of the hardware, such as `…/0000:00:02.0`.
    hardware: PathBuf,
}

fn find_spec_device_paths(spec: &SpecDevices, host: &dyn HostView) -> Vec<DevicePaths> {
    let spec_numbers = spec.nodes.iter().map(|node| node.number);
    let mounted_nodes = spec.mount_points.iter().flat_map(|directory| {
        let names = host.list(directory).unwrap_or_default().into_iter();
        let paths = names.map(|name| directory.join(name));
        paths.chain([directory.clone()])
    });
    let mounted_numbers = mounted_nodes
        .filter_map(|path| match host.entry(&path) {
            Ok(Some(Entry::Device(number))) => Some(number),
            _ => None,
        })
        .take(MAX_MOUNTED_NODES);
    let numbers = spec_numbers.chain(mounted_numbers);
    numbers
        .filter_map(|number| find_device_paths(number, host))
        .collect()
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

/// Adds the links of a masked directory that lead to one of the devices, to a part of it, or to a
/// device that it is a part of.
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
        let entry = directory.join(name);
        let (Ok(target), Ok(path)) = (host.read_link(&entry), host.canonicalize(&entry)) else {
            continue;
        };
        let is_of_device = |device: &DevicePaths| {
            device.node.starts_with(&path) || path.starts_with(&device.hardware)
        };
        if device_paths.iter().any(is_of_device) {
            links.insert(entry, target);
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
            show_spec_devices(&mut plan, &spec, &host);
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

//! A snapshot of the host: the classes that `boathook follow` tracks (`follow = true`), and their
//! devices. All containers are compared with the same snapshot. This module does not read any
//! container.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::device::DeviceNumber;
use device_class::discover::{self, Device, FoundNode, PathLookup, PathTarget};
use device_class::host::RealHost;
use device_class::load::{self, ClassSource};
use device_class::name::{ClassName, DeviceId};
use hook::attachment::{
    Announcement, AttachmentRecord, AwaitedRequest, ContainerDevice, RecordedRule,
};
use hook::log;
use hook::planner::{self, ScannedClass};
use injection_plan::request::{DeviceList, Selection};
use serde::{Deserialize, Serialize};

/// A device of a container that `boathook follow` tracks, because its class has `follow = true`.
#[derive(Clone, PartialEq)]
pub(crate) struct FollowedDevice<'d> {
    pub(crate) device: &'d ContainerDevice,
    /// The device as the host has it now. `None` means that the host does not have it.
    pub(crate) host_device: Option<HostDevice>,
}

/// A device of a container, as the host has it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostDevice {
    /// The id of the device on the host. It can differ from the recorded id if the device was
    /// requested by a name and is now plugged in at another port.
    pub(crate) id: DeviceId,
    pub(crate) nodes: Vec<HostDeviceNode>,
    /// The device's symbolic links in directories that masks hide, such as /sys/bus/usb/devices.
    /// The kernel creates the links to the interfaces of a USB device after the device itself.
    links: Vec<HostLink>,
}

/// A symbolic link of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HostLink {
    path: PathBuf,
    target: PathBuf,
}

/// A device node of the host, and the path and the links that it has in containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostDeviceNode {
    /// The path of the node in the container, such as /dev/ttyUSB0.
    path: PathBuf,
    number: DeviceNumber,
    /// The paths, in the container, of the symbolic links to the node, such as those in
    /// /dev/serial/by-id.
    links: Vec<PathBuf>,
}

impl fmt::Display for HostDeviceNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.number)?;
        for link in &self.links {
            write!(f, " {}", link.display())?;
        }
        Ok(())
    }
}

/// The names and the host paths by which containers requested the devices of one class.
#[derive(Default)]
struct RequestedNames<'r> {
    device_lists: Vec<DeviceList>,
    paths: BTreeSet<&'r Path>,
}

/// The classes of all containers' devices, as they were on the host at one moment. The snapshot has
/// the devices only of classes with `follow = true`, which are the followed classes.
#[derive(Default)]
pub(crate) struct HostSnapshot {
    followed_classes: BTreeMap<ClassName, ScannedClass>,
    /// The announcements of each device, by class. The map contains only classes that have
    /// `announce = true`.
    announcements: BTreeMap<ClassName, BTreeMap<DeviceId, Vec<Announcement>>>,
    /// The classes whose devices `boathook follow` does not track, because they lack
    /// `follow = true`.
    unfollowed_classes: BTreeSet<ClassName>,
    /// The classes that cannot be used, each with the reason. A container keeps the devices of such
    /// a class until the devices are unplugged.
    pub(crate) unusable_classes: BTreeMap<ClassName, String>,
}

impl HostSnapshot {
    /// Takes a snapshot of the host. The snapshot contains the classes of all devices and requests
    /// in `records`.
    pub(crate) fn take(records: &[AttachmentRecord], config: &Config) -> Self {
        let mut classes: BTreeMap<&ClassName, RequestedNames<'_>> = BTreeMap::new();
        for device in records.iter().flat_map(|record| &record.devices) {
            let requested_names = classes.entry(&device.class).or_default();
            let name = device.name.clone();
            requested_names
                .device_lists
                .extend(name.map(DeviceList::from_item));
            requested_names.paths.extend(device.requested_paths());
        }
        for request in records.iter().flat_map(|record| &record.awaited_requests) {
            let requested_names = classes.entry(&request.class).or_default();
            requested_names
                .device_lists
                .push(request.awaited_device.to_device_list());
        }
        let mut snapshot = HostSnapshot::default();
        if let Err(reason) = snapshot.look_up_classes(&classes, config) {
            let unusable_classes = classes
                .keys()
                .map(|class| ((*class).clone(), reason.clone()));
            snapshot.unusable_classes.extend(unusable_classes);
        }
        snapshot
    }

    fn look_up_classes(
        &mut self,
        classes: &BTreeMap<&ClassName, RequestedNames<'_>>,
        config: &Config,
    ) -> Result<(), String> {
        let host = planner::open_host(config).map_err(|error| log::format_error_chain(&error))?;
        let sources = load::read_each_source(&config.classes)
            .map_err(|error| log::format_error_chain(&error))?;
        for source in sources {
            let name = match &source {
                Ok(source) => source.name.as_str(),
                Err(error) => {
                    let stem = error.path().file_stem().and_then(|stem| stem.to_str());
                    stem.unwrap_or_default()
                }
            };
            let mut requested_classes = classes.iter();
            let requested_class = requested_classes.find(|(class, _)| class.as_str() == name);
            let Some((&name, requested_names)) = requested_class else {
                continue;
            };
            let name = name.clone();
            let source = source.map_err(|error| log::format_error_chain(&error));
            match source.and_then(|source| look_up_class(&source, requested_names, &host, config)) {
                Ok(Some(scanned_class)) => {
                    if scanned_class.class.spec.announces_devices {
                        let announcements = find_class_announcements(&scanned_class, &host);
                        self.announcements.insert(name.clone(), announcements);
                    }
                    self.followed_classes.insert(name, scanned_class);
                }
                Ok(None) => drop(self.unfollowed_classes.insert(name)),
                Err(reason) => {
                    self.unusable_classes.insert(name, reason);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn find_followed_class(&self, name: &ClassName) -> Option<&ScannedClass> {
        self.followed_classes.get(name)
    }

    /// Reports whether the host has a node of the device now.
    pub(crate) fn has_nodes(&self, device: &ContainerDevice) -> bool {
        let class = self.followed_classes.get(&device.class);
        class.is_some_and(|class| find_host_device(class, device).is_some())
    }

    /// Returns the id that a recorded device has on the host now. Returns `None` if the host does
    /// not have the device.
    pub(crate) fn find_host_id(&self, device: &ContainerDevice) -> Option<DeviceId> {
        let class = self.followed_classes.get(&device.class)?;
        Some(find_host_device(class, device)?.id)
    }

    /// Reports whether a request that waits for a device selects the device `id` of the host now.
    pub(crate) fn is_fulfilled_by(&self, request: &AwaitedRequest, id: &DeviceId) -> bool {
        let class = self.followed_classes.get(&request.class);
        let devices = class.map(|class| request.find_arrived_devices(class));
        devices.is_some_and(|devices| devices.iter().any(|device| device.device_id == *id))
    }

    /// Returns the numbers that the nodes of a recorded device have on the host now. Returns `None`
    /// if the device's class does not have `follow = true`, or cannot be used.
    pub(crate) fn list_numbers(&self, device: &ContainerDevice) -> Option<Vec<DeviceNumber>> {
        let class = self.followed_classes.get(&device.class)?;
        let present_device = find_host_device(class, device);
        let nodes = present_device.into_iter().flat_map(|device| device.nodes);
        Some(nodes.map(|node| node.number).collect())
    }

    /// Returns the paths of the links that the devices of followed classes have in directories such
    /// as /sys/bus/usb/devices.
    pub(crate) fn list_link_paths(&self) -> BTreeSet<&Path> {
        let classes = self.followed_classes.values();
        let devices = classes.flat_map(|class| &class.found.inventory.devices);
        let entries = devices.flat_map(|device| &device.unmasked_entries);
        entries.map(|entry| &*entry.path).collect()
    }

    pub(crate) fn list_followed_classes(&self) -> impl Iterator<Item = &ScannedClass> {
        self.followed_classes.values()
    }

    /// Returns the devices in `record` whose classes have `follow = true`.
    pub(crate) fn list_followed_devices<'d>(
        &self,
        record: &'d AttachmentRecord,
    ) -> Vec<FollowedDevice<'d>> {
        let devices = record.devices.iter();
        let followed_devices = devices.filter_map(|device| {
            let class = self.followed_classes.get(&device.class)?;
            Some(FollowedDevice {
                device,
                host_device: find_host_device(class, device),
            })
        });
        followed_devices.collect()
    }

    /// Returns the names of the classes with `follow = true` to which the devices in `record`
    /// belong.
    pub(crate) fn list_followed_class_names<'s>(
        &'s self,
        record: &AttachmentRecord,
    ) -> BTreeSet<&'s ClassName> {
        let devices = record.devices.iter();
        let classes =
            devices.filter_map(|device| self.followed_classes.get_key_value(&device.class));
        classes.map(|(name, _)| name).collect()
    }

    /// Returns the device nodes that all devices of a class share, for the classes of the devices
    /// in `record`.
    pub(crate) fn list_class_nodes(&self, record: &AttachmentRecord) -> Vec<HostDeviceNode> {
        let classes = self.list_followed_class_names(record).into_iter();
        let nodes = classes.flat_map(|class| &self.followed_classes[class].found.edits.nodes);
        nodes.filter_map(to_host_device_node).collect()
    }

    /// Reports whether a host path now leads to a node of this device, and does not lead to a node
    /// of another device.
    pub(crate) fn is_path_of_device(&self, device: &ContainerDevice, path: &Path) -> bool {
        let class = self.followed_classes.get(&device.class);
        let paths = class.map_or(&[][..], |class| &class.found.inventory.paths);
        paths.iter().any(|(known_path, path_target)| {
            let ids = match path_target {
                PathTarget::Devices { ids, .. } => ids.as_slice(),
                PathTarget::Absent(_) | PathTarget::NoDevice(_) => &[],
            };
            known_path == path && matches!(ids, [id] if *id == device.device_id)
        })
    }

    pub(crate) fn is_unfollowed(&self, class: &ClassName) -> bool {
        self.unfollowed_classes.contains(class)
    }

    /// Reports whether the host has a device. A device whose class is not followed is not looked
    /// up, and counts as present. Returns `None` if the class does not exist or cannot be used.
    pub(crate) fn has_device(&self, device: &ContainerDevice) -> Option<bool> {
        if self.is_unfollowed(&device.class) {
            return Some(true);
        }
        let class = self.followed_classes.get(&device.class)?;
        Some(find_host_device(class, device).is_some())
    }

    /// Reports whether a rule is for a device number that the device had before, but no longer has.
    pub(crate) fn has_outdated_number(
        &self,
        device: &ContainerDevice,
        rule: &RecordedRule,
        host_root: &Path,
    ) -> bool {
        let Some(class) = self.followed_classes.get(&device.class) else {
            return false;
        };
        let own_nodes = find_device(class, device);
        let own_nodes = own_nodes.into_iter().flat_map(|device| &device.nodes);
        let mut nodes = own_nodes.chain(&class.found.edits.nodes);
        let has_number = |node: &FoundNode| match node.number {
            PathLookup::Found(number) => number == rule.rule.number,
            _ => false,
        };
        // `nodes` does not contain the nodes of capabilities. So a rule with a host node is
        // outdated only if this node has changed as well. A rule without a host node is for a node
        // that the hook created. Such a node is in `nodes`, unless its number is outdated.
        let has_changed = match rule.host_node {
            Some(_) => rule.has_lost_host_node(host_root),
            None => true,
        };
        has_changed && !nodes.any(has_number)
    }

    /// Returns the announcements of a device. The list is empty if the host does not have the
    /// device. Returns `None` if the class of the device does not have `announce = true`.
    pub(crate) fn find_announcements(&self, device: &ContainerDevice) -> Option<&[Announcement]> {
        let devices = self.announcements.get(&device.class)?;
        let class = self.followed_classes.get(&device.class)?;
        let announcements =
            find_device(class, device).and_then(|host_device| devices.get(&host_device.id));
        Some(announcements.map_or(&[], Vec::as_slice))
    }
}

/// Looks up the devices of a class on the host. Returns `None` if the class does not have
/// `follow = true`.
fn look_up_class(
    source: &ClassSource,
    requested_names: &RequestedNames<'_>,
    host: &RealHost,
    config: &Config,
) -> Result<Option<ScannedClass>, String> {
    let class = config
        .class(source)
        .map_err(|error| log::format_error_chain(&error))?;
    if !class.spec.is_followed {
        return Ok(None);
    }
    let device_lists = requested_names.device_lists.iter();
    let selections =
        device_lists.filter_map(|device_list| Selection::from_list(device_list, &class.spec).ok());
    let mut paths: BTreeSet<PathBuf> = selections
        .flat_map(|selection| selection.host_paths(&class.spec))
        .collect();
    paths.extend(requested_names.paths.iter().map(|path| path.to_path_buf()));
    let paths: Vec<PathBuf> = paths.into_iter().collect();
    let discovery = discover::look_up_nodes(&class, &paths, host);
    let discovery = discovery.map_err(|error| log::format_error_chain(&error))?;
    Ok(Some(ScannedClass {
        class,
        found: discovery,
    }))
}

fn find_class_announcements(
    scanned_class: &ScannedClass,
    host: &RealHost,
) -> BTreeMap<DeviceId, Vec<Announcement>> {
    let devices = scanned_class.found.inventory.devices.iter();
    let announcements = devices.map(|device| {
        let nodes = device.nodes.iter();
        let announcements = nodes.filter_map(|node| Announcement::from_node(node, host));
        (device.id.clone(), announcements.collect())
    });
    announcements.collect()
}

fn find_host_device(scanned_class: &ScannedClass, device: &ContainerDevice) -> Option<HostDevice> {
    let host_device = find_device(scanned_class, device)?;
    let nodes: Vec<HostDeviceNode> = host_device
        .nodes
        .iter()
        .filter_map(to_host_device_node)
        .collect();
    let links = host_device.unmasked_entries.iter().filter_map(|entry| {
        Some(HostLink {
            path: entry.path.clone(),
            target: entry.link.clone()?,
        })
    });
    (!nodes.is_empty()).then(|| HostDevice {
        id: host_device.id.clone(),
        nodes,
        links: links.collect(),
    })
}

/// Finds a container's device on the host. If the device was requested by an alias or a link, it is
/// found by this name, because another device may have its id now. If several devices have the
/// name, returns the device with the recorded id.
fn find_device<'c>(
    scanned_class: &'c ScannedClass,
    device: &ContainerDevice,
) -> Option<&'c Device> {
    let inventory = &scanned_class.found.inventory;
    let has_id = |candidate: &&Device| candidate.id == device.device_id;
    let Some(name) = &device.name else {
        return inventory.devices.iter().find(has_id);
    };
    let request = DeviceList::from_item(name.clone());
    let selection = Selection::from_list(&request, &scanned_class.class.spec).ok()?;
    let named_devices = selection
        .choose_devices(&scanned_class.class, inventory)
        .ok()?;
    match named_devices.as_slice() {
        [device] => Some(device),
        devices => devices.iter().copied().find(has_id),
    }
}

/// Converts a node that a scan found. Returns `None` if the host does not have the node.
fn to_host_device_node(node: &FoundNode) -> Option<HostDeviceNode> {
    let PathLookup::Found(number) = node.number else {
        return None;
    };
    Some(HostDeviceNode {
        path: node.container_path.clone(),
        number,
        links: node.links.clone(),
    })
}

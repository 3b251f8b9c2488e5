//! Resolves the names in requests: finds the devices of a host that an item means. Also writes the
//! name of a device in the form that a request accepts.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::DeviceClass;
use device_class::discover::{
    Device, DeviceNames, FoundNode, InaccessibleDevice, Inventory, NameKind, PathTarget,
    parse_dev_path,
};
use device_class::name::{DeviceId, IndexRange, IndexRangeError, is_reserved_name};

use super::address::is_usb_port;
use super::cdi_name::{CdiKind, split_cdi_kind};
use super::list::{DeviceListItem, quote_if_needed};
use super::{RequestError, Selection};

/// The names by which requests can select the devices of one class on this host.
pub struct RequestNames<'a> {
    pub(super) class: &'a DeviceClass,
    pub(super) inventory: &'a Inventory,
    device_names: DeviceNames<'a>,
    partitioned_device_names: DeviceNames<'a>,
    /// Whether devices of this host are named by their USB ports. If so, a text such as `1-2` never
    /// means a range of indices. While no device is plugged in at port `1-2`, such a range would
    /// select other devices.
    has_usb_port_names: bool,
}

/// The devices that an item of a request selects. The numbers are positions in the lists of the
/// inventory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct DevicePositions {
    pub(super) devices: Vec<usize>,
    /// The positions of partitioned devices. The item selects such a device as a whole, without its
    /// partitions.
    pub(super) partitioned_devices: Vec<usize>,
}

/// The result of resolving one item of a request: devices, or a range of indices.
pub(super) enum ResolvedItem {
    Devices(DevicePositions),
    /// The item is a range of indices. The host must have a device for each index, unless the class
    /// ignores unknown devices.
    Range(IndexRange),
}

/// The name of a device in the form that a request accepts: with quotes if the name needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestText {
    pub text: String,
    /// Whether a request with this text selects only this device and no other.
    pub is_unique: bool,
}

impl DevicePositions {
    pub(super) fn select_devices<'a>(
        &self,
        inventory: &'a Inventory,
    ) -> impl Iterator<Item = &'a Device> {
        let partitioned_devices = self
            .partitioned_devices
            .iter()
            .map(|position| &inventory.partitioned_devices[*position]);
        let devices = self
            .devices
            .iter()
            .map(|position| &inventory.devices[*position]);
        partitioned_devices.chain(devices)
    }

    fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.partitioned_devices.is_empty()
    }
}

impl<'a> RequestNames<'a> {
    pub fn new(class: &'a DeviceClass, inventory: &'a Inventory) -> Self {
        RequestNames {
            class,
            inventory,
            device_names: DeviceNames::new(&inventory.devices),
            partitioned_device_names: DeviceNames::new(&inventory.partitioned_devices),
            has_usb_port_names: inventory
                .devices
                .iter()
                .flat_map(|device| &device.aliases)
                .any(|alias| is_usb_port(alias)),
        }
    }

    pub(super) fn devices(&self) -> &'a [Device] {
        &self.inventory.devices
    }

    pub(super) fn parts_only_devices(&self) -> &'a [Device] {
        &self.inventory.parts_only_devices
    }

    /// Returns the text with which a request selects `device` by its name `name`. Returns `None` if
    /// there is no such text, because the name is a reserved word or a path, or selects other
    /// devices.
    pub fn format_name(&self, device: &Device, name: &str) -> Option<RequestText> {
        let text = quote_if_needed(name).into_owned();
        let Ok(Selection::Items(items)) = Selection::parse(&text, &self.class.spec) else {
            return None;
        };
        let [item] = items.as_slice() else {
            return None;
        };
        let (kind, _) = split_cdi_kind(item, &self.class.spec);
        if kind.is_some() || item.text != name || parse_dev_path(name).is_some() {
            return None;
        }
        let positions = self.find_by_name(name, None, item.is_quoted).devices;
        let mut devices = positions
            .iter()
            .map(|position| &self.inventory.devices[*position]);
        let matches_device = devices.any(|candidate| candidate.id == device.id);
        let is_unique = positions.len() == 1;
        matches_device.then_some(RequestText { text, is_unique })
    }

    /// Returns whether `name` selects only `device`, and no other device of the same resource.
    pub(crate) fn identifies_device(&self, device: &Device, name: &str) -> bool {
        let positions = self.find_by_name(name, Some(device.resource.as_str()), false);
        let devices = &self.inventory.devices;
        matches!(positions.devices.as_slice(), [position] if devices[*position].id == device.id)
    }

    /// Resolves an item of a request. The item is first read as a path or a CDI name, then as the
    /// name of a device, and last as a range of indices. So a name that looks like a range still
    /// selects the device with this name.
    ///
    /// # Errors
    /// Returns an error if the item selects no device, or if its path is a node of several devices.
    pub(super) fn resolve_item(&self, item: &DeviceListItem) -> Result<ResolvedItem, RequestError> {
        let (kind, text) = split_cdi_kind(item, &self.class.spec);
        let resource = match kind {
            Some(CdiKind::Resource(resource)) => Some(resource),
            Some(CdiKind::AnyResource) | None => None,
        };
        if let Some(resource) = resource.filter(|_| text.eq_ignore_ascii_case("all")) {
            return self
                .find_healthy_devices(resource)
                .map(ResolvedItem::Devices);
        }
        let positions = match parse_dev_path(text) {
            Some(path) => self.find_by_path(path, resource)?,
            None => self.find_by_name(text, resource, item.is_quoted),
        };
        if !positions.is_empty() {
            return Ok(ResolvedItem::Devices(positions));
        }
        let malformed_error = || RequestError::MalformedItem(text.to_owned());
        let is_absent_port = is_usb_port(text) && self.has_usb_port_names;
        let may_be_range = !item.is_quoted && resource.is_none() && !is_absent_port;
        match IndexRange::parse(text).filter(|_| may_be_range) {
            Some(Ok(range)) => return Ok(ResolvedItem::Range(range)),
            Some(Err(IndexRangeError::Backwards { first, last })) => {
                return Err(RequestError::BackwardsRange { first, last });
            }
            Some(Err(IndexRangeError::Malformed)) => return Err(malformed_error()),
            None => {}
        }
        if let (None, false, Some((kind, _))) = (kind, item.is_quoted, text.split_once('=')) {
            return Err(RequestError::OtherKind {
                item: text.to_owned(),
                kind: kind.to_owned(),
            });
        }
        // The name of a partition may have a slash.
        let is_name_character = |c: char| DeviceId::is_valid_char(c) || c == '/';
        if text.is_empty() || !item.is_quoted && !text.chars().all(is_name_character) {
            return Err(malformed_error());
        }
        let mut error = match resource {
            Some(resource) => self.unknown_device_error(&format!("{resource}={text}")),
            None => self.unknown_device_error(text),
        };
        // In the list form of a compose file, as in `- VARIABLE="all"`, the quotes are part of the
        // value. The message then advises to remove them, but not for a range: `"1-2"` may be a USB
        // port, and 1-2 without quotes would select other devices.
        let has_meaning_without_quotes = is_reserved_name(text) || text.parse::<u32>().is_ok();
        if let RequestError::UnknownDevice { known_devices, .. } = &mut error
            && item.is_quoted
            && has_meaning_without_quotes
        {
            known_devices.insert_str(0, "in quotes it is a name, so write it without them; ");
        }
        Err(error)
    }

    /// Returns the device that an item names by an alias or by a symbolic link, if exactly one
    /// device has this name. The name of a device node does not count, because it is not stable:
    /// the kernel numbers nodes in the order in which it detects devices.
    pub(super) fn find_named_device(&self, item: &DeviceListItem) -> Option<&'a Device> {
        let (_, text) = split_cdi_kind(item, &self.class.spec);
        let is_alias_or_path = parse_dev_path(text).is_some() || self.is_alias(text);
        let Ok(ResolvedItem::Devices(positions)) = self.resolve_item(item) else {
            return None;
        };
        let (true, true, [position]) = (
            is_alias_or_path,
            positions.partitioned_devices.is_empty(),
            positions.devices.as_slice(),
        ) else {
            return None;
        };
        let device = &self.inventory.devices[*position];
        let is_node = |node: &FoundNode| {
            node.host_path == Path::new(text) || node.host_path.file_name() == Some(text.as_ref())
        };
        (!device.nodes.iter().any(is_node)).then_some(device)
    }

    /// Returns whether `name` is the alias of a device, and not also the id of a device.
    pub(super) fn is_alias(&self, name: &str) -> bool {
        let has_kind = |kind| !self.device_names.find_by_kind(name, kind).is_empty();
        has_kind(NameKind::Alias) && !has_kind(NameKind::Id)
    }

    /// Returns the error for a name that no device has. Its message describes the devices of the
    /// class.
    pub(super) fn unknown_device_error(&self, name: &str) -> RequestError {
        RequestError::UnknownDevice {
            class: self.class.name.clone(),
            name: name.to_owned(),
            known_devices: self.describe_devices(name),
        }
    }

    /// Finds the devices with an index. If a partitioned device has the index, only this device is
    /// found, and not its partitions.
    pub(super) fn find_by_index(&self, index: u32) -> Option<DevicePositions> {
        let index = index.to_string();
        Some(self.find_by_kind(&index, NameKind::Index, None))
            .filter(|positions| !positions.is_empty())
    }

    /// Finds the healthy devices of a resource.
    ///
    /// # Errors
    /// Returns an error if the resource has no healthy device.
    fn find_healthy_devices(&self, resource: &str) -> Result<DevicePositions, RequestError> {
        let devices = self.inventory.devices.iter().zip(0..);
        let resource_devices = devices.filter(|(device, _)| device.resource.as_str() == resource);
        let (healthy_devices, unhealthy_devices): (Vec<_>, Vec<_>) =
            resource_devices.partition(|(device, _)| device.health.is_healthy());
        if !healthy_devices.is_empty() {
            return Ok(DevicePositions {
                devices: healthy_devices
                    .into_iter()
                    .map(|(_, position)| position)
                    .collect(),
                partitioned_devices: Vec::new(),
            });
        }
        if unhealthy_devices.is_empty() {
            return Err(self.unknown_device_error(&format!("{resource}=all")));
        }
        let unhealthy_devices = unhealthy_devices.into_iter().map(|(device, _)| device);
        Err(RequestError::from_unhealthy_devices(
            &self.class.name,
            unhealthy_devices,
        ))
    }

    /// Finds the devices that have a name. If `resource` is set, only devices of this resource are
    /// searched. The kinds of names (ids, aliases, ...) are searched in a fixed order, and the
    /// first kind with a match counts.
    ///
    /// A quoted name is never an index: it must not select another device when its own device is
    /// unplugged.
    fn find_by_name(&self, name: &str, resource: Option<&str>, is_quoted: bool) -> DevicePositions {
        let name_kinds = NameKind::LOOKUP_ORDER.into_iter();
        let mut candidates = name_kinds
            .filter(|kind| !is_quoted || *kind != NameKind::Index)
            .map(|kind| self.find_by_kind(name, kind, resource));
        candidates
            .find(|positions| !positions.is_empty())
            .unwrap_or_default()
    }

    /// Finds the devices that have a name of one kind, such as an id or an alias. If a partitioned
    /// device has the same name as its partitions, only the device is found.
    fn find_by_kind(&self, name: &str, kind: NameKind, resource: Option<&str>) -> DevicePositions {
        let mut positions = DevicePositions::default();
        if resource.is_none() {
            positions.partitioned_devices = self.partitioned_device_names.find_by_kind(name, kind);
        }
        if positions.partitioned_devices.is_empty() {
            positions.devices = self.device_names.find_by_kind(name, kind);
            self.retain_resource(&mut positions.devices, resource);
        }
        positions
    }

    fn retain_resource(&self, positions: &mut Vec<usize>, resource: Option<&str>) {
        if let Some(resource) = resource {
            let devices = &self.inventory.devices;
            positions.retain(|position| devices[*position].resource.as_str() == resource);
        }
    }

    /// Finds the device whose node is at a host path, or at the end of the symbolic link there. The
    /// scan of the host has resolved the path.
    ///
    /// # Errors
    /// Returns an error if no device or more than one device has the node.
    fn find_by_path(
        &self,
        path: &Path,
        resource: Option<&str>,
    ) -> Result<DevicePositions, RequestError> {
        let unknown_path_error = |reason: &str, is_absent: bool| {
            let path = path.to_string_lossy().into_owned();
            match parse_host_path(&path) {
                Some(host) => RequestError::ContainerPath {
                    host: host.to_owned(),
                    item: path,
                },
                None => RequestError::UnknownPath {
                    class: self.class.name.clone(),
                    reason: format!("{reason}; {}", self.describe_devices(&path)),
                    path,
                    is_absent,
                },
            }
        };
        let ids = match self.find_path_target(path) {
            Some(PathTarget::Devices { ids, .. }) => ids,
            Some(PathTarget::Absent(reason)) => return Err(unknown_path_error(reason, true)),
            Some(PathTarget::NoDevice(reason)) => return Err(unknown_path_error(reason, false)),
            None => {
                return Err(unknown_path_error(
                    "paths of the host are not read here",
                    false,
                ));
            }
        };
        let find_positions = |devices: &[Device]| -> Vec<usize> {
            let devices_of_node = devices
                .iter()
                .zip(0..)
                .filter(|(device, _)| ids.contains(&device.id));
            devices_of_node.map(|(_, position)| position).collect()
        };
        let (mut partitioned_devices, mut devices) = (Vec::new(), Vec::new());
        if resource.is_none() {
            partitioned_devices = find_positions(&self.inventory.partitioned_devices);
        }
        if partitioned_devices.is_empty() {
            devices = find_positions(&self.inventory.devices);
            self.retain_resource(&mut devices, resource);
        }
        if devices.len() + partitioned_devices.len() > 1 {
            let ids: Vec<&str> = ids.iter().map(DeviceId::as_str).collect();
            return Err(RequestError::SharedPath {
                path: path.to_string_lossy().into_owned(),
                devices: ids.join(", "),
            });
        }
        Ok(DevicePositions {
            devices,
            partitioned_devices,
        })
    }

    /// Returns the target of a host path, which the scan of the host has found: devices, or the
    /// reason why there is none. Returns `None` if the scan did not read the path.
    pub(super) fn find_path_target(&self, path: &Path) -> Option<&'a PathTarget> {
        let mut paths = self.inventory.paths.iter();
        let entry = paths.find(|(scanned_path, _)| scanned_path.as_os_str() == path.as_os_str());
        entry.map(|(_, node)| node)
    }

    /// Returns the device at `positions`, or `None` if there is not exactly one.
    pub(super) fn find_single_device(&self, positions: &DevicePositions) -> Option<&'a Device> {
        match (
            positions.partitioned_devices.as_slice(),
            positions.devices.as_slice(),
        ) {
            ([position], []) => self.inventory.partitioned_devices.get(*position),
            ([], [position]) => self.inventory.devices.get(*position),
            _ => None,
        }
    }

    /// Describes the devices of the class on this host, for an error message about `name`. No
    /// device has this name. If `name` is an index, the valid indices are described.
    fn describe_devices(&self, name: &str) -> String {
        let hidden_count = self.inventory.hidden_ids.len();
        let class = &self.class.name;
        let index = name.rsplit('=').next().unwrap_or(name);
        let is_index = index.parse::<u32>().is_ok();
        let indices = is_index.then(|| self.describe_indices()).flatten();
        let description = match (self.inventory.devices.as_slice(), indices) {
            ([], _) if hidden_count > 0 => "there are no others".into(),
            ([], _) if self.class.spec.is_followed => {
                "there are none, so plug it in and check that its driver is loaded, or add `?` to \
                 the name to start without it"
                    .into()
            }
            ([], _) => "there are none, so check that the driver is loaded".into(),
            (_, Some(indices)) => indices,
            ([device], None) => format!("there is {}", device.id),
            ([first, .., last], None) => format!(
                "there are {}, from {} to {}; `boathook list {class}` shows their names",
                self.inventory.devices.len(),
                first.id,
                last.id,
            ),
        };
        let description = match hidden_count {
            0 => description,
            _ => format!("{description}; `only` or `except` in config.toml hides {hidden_count}"),
        };
        match self.inventory.inaccessible_devices.as_slice() {
            [] => description,
            [InaccessibleDevice { id, reason }, ..] => {
                format!("{description}; {id} is absent: {reason}")
            }
        }
    }

    /// Describes the indices of the devices. Returns `None` if a device has no index.
    fn describe_indices(&self) -> Option<String> {
        const MAX_SHOWN_DEVICES: usize = 4;
        let devices = self.inventory.devices.as_slice();
        let optional_indices = devices.iter().map(|device| device.index.as_deref());
        let indices: Vec<&str> = optional_indices.collect::<Option<_>>()?;
        let count = devices.len();
        if count > MAX_SHOWN_DEVICES {
            let class = &self.class.name;
            let parsed_numbers = indices.iter().map(|index| index.parse().ok());
            let numbers: BTreeSet<u32> = parsed_numbers.collect::<Option<_>>()?;
            let (first, last) = (numbers.first()?, numbers.last()?);
            return Some(format!(
                "there are {count}, with indices from {first} to {last}; `boathook list {class}` \
                 shows their names"
            ));
        }
        let indexed_devices = indices.iter().zip(devices);
        let descriptions: Vec<String> = indexed_devices
            .map(|(index, device)| format!("{index} ({})", device.id))
            .collect();
        let devices = descriptions.join(", ");
        Some(match count {
            1 => format!("there is {devices}"),
            _ => format!("there are {count}: {devices}"),
        })
    }
}

/// Returns the host path of an item such as HOST:CONTAINER, HOST:CONTAINER:ACCESS or HOST:ACCESS.
/// The option `--device` of engines accepts these forms.
fn parse_host_path(item: &str) -> Option<&str> {
    if let Some((host, _)) = item.split_once(":/") {
        return Some(host);
    }
    let (host, access) = item.rsplit_once(':')?;
    let is_access = (1..=3).contains(&access.len()) && access.chars().all(|c| "rwm".contains(c));
    is_access.then_some(host)
}

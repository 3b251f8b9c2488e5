//! Resolves the names of devices in requests: finds the devices that an item means on a
//! host, and writes a name so that a request with it means a given device.

use std::fmt;
use std::path::Path;

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::discover::{
    Device, DeviceNames, FoundNode, Inventory, NameKind, NamedByPath, as_path,
};
use device_class::name::{DeviceId, IndexRange, IndexRangeError, is_reserved_name};
use device_class::similar;
use serde::Serialize;

use super::list::{Item, as_item};
use super::{Awaited, RequestError, Selection};

/// Resolves the items of requests for the devices of one class on one host.
pub struct RequestNames<'a> {
    class: &'a DeviceClass,
    inventory: &'a Inventory,
    names: DeviceNames<'a>,
    divided: DeviceNames<'a>,
}

/// The devices that an item means, as positions in the lists of the inventory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct MeantDevices {
    pub(super) devices: Vec<usize>,
    /// Devices that are divided into parts. The item means the whole device without its
    /// parts.
    pub(super) divided: Vec<usize>,
}

/// The result of resolving one item of a request.
pub(super) enum Meaning {
    Devices(MeantDevices),
    /// The item is a range of device indices. Every index of the range must exist.
    Range(IndexRange),
}

/// A device of the host whose name is similar to one that no device has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SimilarDevice {
    /// The similar name, as a request has it.
    pub name: String,
    pub device: DeviceId,
    /// The other names of the device.
    pub aliases: Vec<String>,
}

impl fmt::Display for SimilarDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "did you mean {}", self.name)?;
        let id = (self.name != self.device.as_str()).then(|| self.device.as_str());
        let aliases = self.aliases.iter().map(String::as_str);
        let others: Vec<&str> = id.into_iter().chain(aliases).collect();
        if !others.is_empty() {
            write!(f, " (also called {})", others.join(", "))?;
        }
        f.write_str("?")
    }
}

/// The name of a device, with quotes if a request needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenName {
    pub text: String,
    /// Whether a request with this text means only this device.
    pub is_own: bool,
}

impl MeantDevices {
    pub(super) fn find_in<'a>(&self, inventory: &'a Inventory) -> impl Iterator<Item = &'a Device> {
        let divided = self.divided.iter().map(|at| &inventory.divided[*at]);
        let devices = self.devices.iter().map(|at| &inventory.devices[*at]);
        divided.chain(devices)
    }

    fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.divided.is_empty()
    }
}

impl<'a> RequestNames<'a> {
    pub fn new(class: &'a DeviceClass, inventory: &'a Inventory) -> Self {
        RequestNames {
            class,
            inventory,
            names: DeviceNames::new(&inventory.devices),
            divided: DeviceNames::new(&inventory.divided),
        }
    }

    /// Returns the text by which a request means `device` with this name. Returns `None` if
    /// a request cannot use the name, because it is a reserved word or a path, or because it
    /// means other devices.
    pub fn write_name(&self, device: &Device, name: &str) -> Option<WrittenName> {
        let text = as_item(name).into_owned();
        let Ok(Selection::These(items)) = Selection::parse(&text, &self.class.spec) else {
            return None;
        };
        let [item] = items.as_slice() else {
            return None;
        };
        let (kind, _) = split_kind(item, &self.class.spec);
        if kind.is_some() || item.text != name || as_path(name).is_some() {
            return None;
        }
        let meant = self.find_name(name, None, item.is_quoted).devices;
        let mut devices = meant.iter().map(|index| &self.inventory.devices[*index]);
        let is_meant = devices.any(|meant| meant.id == device.id);
        let is_own = meant.len() == 1;
        is_meant.then_some(WrittenName { text, is_own })
    }

    /// Returns the device of the host that was probably meant by the name of an awaited one, which
    /// may be mistyped. Of a path the last component is compared.
    pub(crate) fn find_similar(&self, awaited: &Awaited) -> Option<SimilarDevice> {
        let chosen = awaited.last_component()?;
        let devices = &self.inventory.devices;
        let names = |device: &'a Device| {
            let aliases = device.aliases.iter().map(String::as_str);
            std::iter::once(device.id.as_str()).chain(aliases)
        };
        let intended = similar::find_intended(chosen, devices.iter().flat_map(names))?;
        let device = devices
            .iter()
            .find(|device| names(device).any(|name| name == intended))?;
        let name = self.write_name(device, intended)?.text;
        let others = device.aliases.iter().filter_map(|alias| {
            let written = self.write_name(device, alias)?;
            (written.is_own && alias != intended).then_some(written.text)
        });
        Some(SimilarDevice {
            aliases: others.collect(),
            device: device.id.clone(),
            name,
        })
    }

    /// Returns whether a name means only this device, and no other device of its resource.
    pub(crate) fn means_device_alone(&self, device: &Device, name: &str) -> bool {
        let meant = self.find_name(name, Some(device.resource.as_str()), false);
        let devices = &self.inventory.devices;
        matches!(meant.devices.as_slice(), [index] if devices[*index].id == device.id)
    }

    /// Resolves an item of a request. Only paths and the kinds of CDI names take precedence
    /// over the names of devices, so that hardware cannot choose a name that is read as
    /// something else. Ranges come last.
    ///
    /// # Errors
    /// Returns an error if the item means no device.
    pub(super) fn resolve(&self, item: &Item) -> Result<Meaning, RequestError> {
        let (kind, text) = split_kind(item, &self.class.spec);
        let resource = match kind {
            Some(Kind::Resource(resource)) => Some(resource),
            Some(Kind::AnyResource) | None => None,
        };
        if let Some(resource) = resource.filter(|_| text.eq_ignore_ascii_case("all")) {
            return self.find_all(resource).map(Meaning::Devices);
        }
        let meant = match as_path(text) {
            Some(path) => self.find_path(path, resource)?,
            None => self.find_name(text, resource, item.is_quoted),
        };
        if !meant.is_empty() {
            return Ok(Meaning::Devices(meant));
        }
        let malformed = || RequestError::Malformed(text.to_owned());
        match IndexRange::parse(text).filter(|_| !item.is_quoted && resource.is_none()) {
            Some(Ok(range)) => return Ok(Meaning::Range(range)),
            Some(Err(IndexRangeError::Backwards { first, last })) => {
                return Err(RequestError::Backwards { first, last });
            }
            Some(Err(IndexRangeError::Malformed)) => return Err(malformed()),
            None => {}
        }
        if let (None, false, Some((kind, _))) = (kind, item.is_quoted, text.split_once('=')) {
            return Err(RequestError::OtherKind {
                item: text.to_owned(),
                kind: kind.to_owned(),
            });
        }
        // The names of partitions of a device may have slashes.
        let is_usual = |c: char| DeviceId::fits(c) || c == '/';
        if text.is_empty() || !item.is_quoted && !text.chars().all(is_usual) {
            return Err(malformed());
        }
        Err(match resource {
            Some(resource) => self.unknown_name(&format!("{resource}={text}")),
            None => self.unknown_name(text),
        })
    }

    /// Returns the device to which an item refers by an alias or by a link, if it is exactly one. The
    /// name of a device node is not accepted, because the kernel gives such names in the order in
    /// which it detects devices.
    pub(super) fn find_named_device(&self, item: &Item) -> Option<&'a Device> {
        let (_, text) = split_kind(item, &self.class.spec);
        let is_alias_or_path = as_path(text).is_some()
            || self.names.find_kind(text, NameKind::Id).is_empty()
                && !self.names.find_kind(text, NameKind::Alias).is_empty();
        let Ok(Meaning::Devices(meant)) = self.resolve(item) else {
            return None;
        };
        let (true, true, [position]) = (
            is_alias_or_path,
            meant.divided.is_empty(),
            meant.devices.as_slice(),
        ) else {
            return None;
        };
        let device = &self.inventory.devices[*position];
        let is_node = |node: &FoundNode| {
            node.host == Path::new(text) || node.host.file_name() == Some(text.as_ref())
        };
        (!device.nodes.iter().any(is_node)).then_some(device)
    }

    /// Returns the error for a name that no device has.
    pub(super) fn unknown_name(&self, name: &str) -> RequestError {
        RequestError::Unknown {
            class: self.class.name.clone(),
            wanted: name.to_owned(),
            known: self.describe_devices(),
        }
    }

    /// Finds the devices with an index. If a device that is divided into parts has the
    /// index, the index means the device without its parts.
    pub(super) fn find_index(&self, index: u32) -> Option<MeantDevices> {
        let index = index.to_string();
        Some(self.find_kind(&index, NameKind::Index, None)).filter(|meant| !meant.is_empty())
    }

    /// Finds the healthy devices of a resource.
    ///
    /// # Errors
    /// Returns an error if the resource has no healthy device.
    fn find_all(&self, resource: &str) -> Result<MeantDevices, RequestError> {
        let devices = self.inventory.devices.iter().zip(0..);
        let of_resource = devices.filter(|(device, _)| device.resource.as_str() == resource);
        let (healthy, ill): (Vec<_>, Vec<_>) =
            of_resource.partition(|(device, _)| device.health.is_healthy());
        if !healthy.is_empty() {
            return Ok(MeantDevices {
                devices: healthy.into_iter().map(|(_, position)| position).collect(),
                divided: Vec::new(),
            });
        }
        if ill.is_empty() {
            return Err(self.unknown_name(&format!("{resource}=all")));
        }
        let ill = ill.into_iter().map(|(device, _)| device);
        Err(RequestError::none_healthy(&self.class.name, ill))
    }

    /// Finds the devices that have a name, and only devices of `resource` if it is given.
    /// The kinds of names are searched in a fixed order, and the first kind with a match
    /// counts. A quoted name is never an index: if the device with this name is unplugged,
    /// the name must not mean another device with this index.
    fn find_name(&self, name: &str, resource: Option<&str>, is_quoted: bool) -> MeantDevices {
        let kinds = NameKind::IN_ORDER.into_iter();
        let mut found = kinds
            .filter(|kind| !is_quoted || *kind != NameKind::Index)
            .map(|kind| self.find_kind(name, kind, resource));
        found.find(|meant| !meant.is_empty()).unwrap_or_default()
    }

    /// Finds the devices that have a name of one kind. A name that both a divided device and
    /// its parts have means the device without its parts.
    fn find_kind(&self, name: &str, kind: NameKind, resource: Option<&str>) -> MeantDevices {
        let mut meant = MeantDevices::default();
        if resource.is_none() {
            meant.divided = self.divided.find_kind(name, kind);
        }
        if meant.divided.is_empty() {
            meant.devices = self.names.find_kind(name, kind);
            self.retain_resource(&mut meant.devices, resource);
        }
        meant
    }

    fn retain_resource(&self, positions: &mut Vec<usize>, resource: Option<&str>) {
        if let Some(resource) = resource {
            let devices = &self.inventory.devices;
            positions.retain(|at| devices[*at].resource.as_str() == resource);
        }
    }

    /// Finds the device whose node a path of the host leads to. The paths were resolved when
    /// the host was scanned.
    ///
    /// # Errors
    /// Returns an error if no device or more than one device has the node.
    fn find_path(&self, path: &Path, resource: Option<&str>) -> Result<MeantDevices, RequestError> {
        let unknown = |reason: &str, is_absent: bool| {
            let path = path.to_string_lossy().into_owned();
            match host_part(&path) {
                Some(host) => RequestError::ContainerPath {
                    host: host.to_owned(),
                    item: path,
                },
                None => RequestError::UnknownPath {
                    class: self.class.name.clone(),
                    path,
                    reason: format!("{reason}; {}", self.describe_devices()),
                    is_absent,
                },
            }
        };
        let ids = match self.find_node(path) {
            Some(NamedByPath::Devices { ids, .. }) => ids,
            Some(NamedByPath::Absent(reason)) => return Err(unknown(reason, true)),
            Some(NamedByPath::Nothing(reason)) => return Err(unknown(reason, false)),
            None => return Err(unknown("paths of the host are not read here", false)),
        };
        let positions = |devices: &[Device]| -> Vec<usize> {
            let meant = devices
                .iter()
                .zip(0..)
                .filter(|(device, _)| ids.contains(&device.id));
            meant.map(|(_, position)| position).collect()
        };
        let (mut divided, mut devices) = (Vec::new(), Vec::new());
        if resource.is_none() {
            divided = positions(&self.inventory.divided);
        }
        if divided.is_empty() {
            devices = positions(&self.inventory.devices);
            self.retain_resource(&mut devices, resource);
        }
        if devices.len() + divided.len() > 1 {
            let ids: Vec<&str> = ids.iter().map(DeviceId::as_str).collect();
            return Err(RequestError::SharedPath {
                path: path.to_string_lossy().into_owned(),
                devices: ids.join(", "),
            });
        }
        Ok(MeantDevices { devices, divided })
    }

    /// Returns the node to which a path of the host leads, as the scan of the host found it.
    pub(super) fn find_node(&self, path: &Path) -> Option<&'a NamedByPath> {
        let mut paths = self.inventory.paths.iter();
        let found = paths.find(|(found, _)| found.as_os_str() == path.as_os_str());
        found.map(|(_, named)| named)
    }

    /// Returns a device of the inventory by a position in `meant`, if the item means one device
    /// alone.
    pub(super) fn find_single(&self, meant: &MeantDevices) -> Option<&'a Device> {
        match (meant.divided.as_slice(), meant.devices.as_slice()) {
            ([only], []) => self.inventory.divided.get(*only),
            ([], [only]) => self.inventory.devices.get(*only),
            _ => None,
        }
    }

    /// Returns a text about the devices of the class on this host, for an error message.
    fn describe_devices(&self) -> String {
        let hidden = self.inventory.hidden.len();
        let known = match self.inventory.devices.as_slice() {
            [] if hidden > 0 => "there are no others".into(),
            [] => "there are none, so check that the driver is loaded".into(),
            [only] => format!("there is {}", only.id),
            [first, .., last] => format!(
                "there are {}, from {} to {}; `boathook list {}` shows their names",
                self.inventory.devices.len(),
                first.id,
                last.id,
                self.class.name
            ),
        };
        match hidden {
            0 => known,
            _ => format!("{known}; `only` or `except` in config.toml hides {hidden}"),
        }
    }
}

/// Returns the path of the host in an item of the form HOST:CONTAINER, HOST:CONTAINER:ACCESS
/// or HOST:ACCESS, which are the forms of the engines' `--device` option.
fn host_part(item: &str) -> Option<&str> {
    if let Some((host, _)) = item.split_once(":/") {
        return Some(host);
    }
    let (host, access) = item.rsplit_once(':')?;
    let is_access = (1..=3).contains(&access.len()) && access.chars().all(|c| "rwm".contains(c));
    is_access.then_some(host)
}

/// The kind of a CDI name: the part `vendor.com/class` of `vendor.com/class=name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// The kind stands for the whole class.
    AnyResource,
    /// The kind is the resource of some devices of the class.
    Resource(&'a str),
}

/// Splits an item into its kind and the name after it. The kind is `None`, and the text is
/// whole, if the item is not a CDI name of the class.
pub(super) fn split_kind<'a>(item: &'a Item, class: &ClassSpec) -> (Option<Kind<'a>>, &'a str) {
    let text = item.text.as_str();
    let Some((kind, name)) = text.split_once('=').filter(|_| !item.is_quoted) else {
        return (None, text);
    };
    let has_one_resource = class.resource.attributes().next().is_none();
    // The words `none` and `void` mean no device, so they apply to the whole class.
    let is_of_none = is_reserved_name(name) && !name.eq_ignore_ascii_case("all");
    if class.request.kinds.iter().any(|known| known == kind) {
        (Some(Kind::AnyResource), name)
    } else if !class.may_offer(kind) {
        (None, text)
    } else if has_one_resource || is_of_none {
        (Some(Kind::AnyResource), name)
    } else {
        (Some(Kind::Resource(kind)), name)
    }
}

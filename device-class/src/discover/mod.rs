//! Scans a host for the devices of a class, and for the nodes, libraries and files that a container
//! needs to use them.

mod attributes;
mod device;
mod device_filters;
mod driver_root;
mod earlier_properties;
mod edits;
mod file_lists;
mod files;
mod found;
mod group;
mod hardware_reports;
mod health;
mod health_command;
mod health_history;
mod host_program;
mod inaccessible_devices;
mod kernel_log;
mod libraries;
mod links;
mod loaded_driver;
mod look_up;
mod mask;
mod named_libraries;
mod names;
mod naming;
mod net_devices;
mod node_paths;
mod nodes;
mod order;
mod parts;
mod paths;
mod property_commands;
mod search;
mod sharing;
mod source;
mod udev_links;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

pub use device::DeviceError;
pub use earlier_properties::keep_earlier_properties;
pub use edits::{EditSelection, RequestedDevices, find_control_nodes};
pub use found::{
    BitmaskFile, CreatedNode, FileSource, FoundCopy, FoundDirectory, FoundEdits, FoundFile,
    FoundLibrary, FoundMask, FoundNode, ImageLibraries, NodeInjectionMethod, NodePermissions,
    PathLookup, UnmaskedEntry,
};
pub use hardware_reports::{
    HardwareReport, describe_missing_nodes, describe_unclaimed_hardware, describe_unusable_hardware,
};
pub use health::{
    DeferredCheck, DeferredRule, Health, is_unhealthy_by_driver_property, list_response_checks,
};
pub use health_command::HealthCommand;
pub use health_history::HealthHistory;
pub use host_program::{HostProgram, describe_due_run, find_host_program};
pub use inaccessible_devices::InaccessibleDevice;
pub use kernel_log::KernelLogRecord;
pub use links::Connections;
pub use look_up::{FoundClass, LookUpError, find_refusal_reason, look_up_class, look_up_nodes};
pub use mask::is_sysfs_link_directory;
pub use names::{DeviceNames, NameKind};
pub use naming::NameOrigin;
pub use net_devices::{NetInterface, NetInterfaceSearch};
pub use node_paths::{PathTarget, parse_dev_path};
pub use parts::{DeviceDivision, PartAction, PossiblePart, list_divisible_devices};
pub use property_commands::build_property_commands;
pub use sharing::list_label_attributes;
pub use source::RefusedCandidates;

use self::attributes::FileReader;
use crate::class::{DeviceClass, Source};
use crate::driver_properties::DriverProperties;
use crate::host::HostView;
use crate::name::{DeviceId, EnvName, ResourceName, excerpt};
use crate::pattern::PathPattern;
use crate::template::Attributes;

/// The maximum number of devices of one class on a host. If a pattern has more matches, the pattern
/// is probably wrong, so further matches are left out with a warning.
pub const MAX_DEVICES: usize = 4096;

#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The devices that a container can get, sorted by index and then by id. Numeric indexes are
    /// compared as numbers.
    pub devices: Vec<Device>,
    /// Devices that are divided into partitions and therefore not offered. A request may still name
    /// such a device, and gets the whole device without its partitions.
    pub partitioned_devices: Vec<Device>,
    /// Devices that are divided into partitions and that no container may request. Containers get
    /// only the partitions.
    pub parts_only_devices: Vec<Device>,
    /// Warnings for users, one line each: what the scan left out, and why.
    pub warnings: Vec<String>,
    /// The paths that match a pattern of `[[discover]]` but do not meet a condition in its
    /// `require`. They are not devices of the class.
    pub refused_candidates: RefusedCandidates,
    /// The ids of the devices that `only` or `except` in config.toml hides.
    pub hidden_ids: Vec<DeviceId>,
    /// Devices of the machine whose nodes are missing in the container in which Boathook itself
    /// runs.
    pub inaccessible_devices: Vec<InaccessibleDevice>,
    /// The paths by which the container requests devices, such as `/dev/bus/usb/001/004`, each with
    /// the result of its look-up.
    pub paths: Vec<(PathBuf, PathTarget)>,
    /// The attributes of the host, which are the same for all devices of the class.
    pub host_attributes: Attributes,
    /// A message for users if the driver of the class is not loaded. The host then cannot have
    /// devices of the class.
    pub missing_driver_message: Option<String>,
}

/// Formats the inventory: one line for each device, and one for each warning. The tests compare
/// this format with golden files.
impl fmt::Display for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for device in &self.devices {
            let numa_node = device
                .numa
                .map_or("none".to_owned(), |node| node.to_string());
            let (id, resource, health) = (&device.id, &device.resource, &device.health);
            write!(f, "{id}  {resource}  numa {numa_node}  {health}")?;
            if let Some(index) = &device.index {
                write!(f, "  index {index}")?;
            }
            if !device.aliases.is_empty() {
                write!(f, "  aliases {}", device.aliases.join(" "))?;
            }
            writeln!(f)?;
        }
        self.warnings
            .iter()
            .try_for_each(|warning| writeln!(f, "warning: {warning}"))
    }
}

impl Inventory {
    /// Marks all healthy devices as unhealthy, with `reason`. A device that is already unhealthy
    /// keeps its own reason.
    pub fn mark_all_unhealthy(&mut self, reason: &str) {
        self.mark_unhealthy(reason, |_| true);
    }

    /// Marks all devices of a resource as unhealthy if their values of `uniform` in `[device]`
    /// differ. A container that requests the resource could not choose among such devices.
    pub fn mark_mixed_devices_unhealthy(&mut self, class: &DeviceClass) {
        let Some(uniform) = &class.spec.device.uniform else {
            return;
        };
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for device in &self.devices {
            let resource_values = values.entry(device.resource.to_string()).or_default();
            // Filling in cannot fail here: when the class was loaded, each attribute in the
            // template was checked to be known.
            let value = uniform.fill(&device.attributes).unwrap_or_default();
            if !value.is_empty() {
                resource_values.insert(value);
            }
        }
        for (resource, resource_values) in values {
            if resource_values.len() > 1 {
                let resource_values: Vec<String> = resource_values.into_iter().collect();
                let reason = format!(
                    "the devices of {resource} differ ({}), and a container could not choose: \
                     set `resource` in [class.{}] of config.toml so that it distinguishes them",
                    excerpt(&resource_values.join(", ")),
                    class.name
                );
                self.mark_unhealthy(&reason, |device| device.resource.as_str() == resource);
            }
        }
    }

    fn mark_unhealthy(&mut self, reason: &str, is_refused: impl Fn(&Device) -> bool) {
        let devices = self.devices.iter_mut();
        for device in devices.filter(|device| device.health.is_healthy() && is_refused(device)) {
            let reason = reason.to_owned();
            device.health = Health::Unhealthy { reason };
        }
    }
}

/// The minimum length in bytes of an id that counts as unique on a host. It is the length of a PCI
/// address, such as `0000:03:00.0`.
const MIN_UNIQUE_ID_BYTES: usize = 12;

#[derive(Debug, Clone)]
pub struct Device {
    /// The id of the device, which is the same in every scan of the same hardware.
    pub id: DeviceId,
    /// The extended resource under which the device is offered to the kubelet, such as
    /// `vendor.example/npu`.
    pub resource: ResourceName,
    /// Whether the id and the resource name come from files of the host or from driver properties.
    pub name_origin: NameOrigin,
    /// The index by which users know the device, such as `0`, or `1:0` for a partition.
    pub index: Option<String>,
    /// The id of the whole device, if this device is a partition of it. A whole device that has
    /// partitions is not offered to the kubelet itself.
    pub part_of: Option<DeviceId>,
    /// Whether a container may request the whole device, if this device is a partition of it.
    pub can_request_whole_device: bool,
    /// Other names of the device that a request may use, such as a UUID.
    pub aliases: Vec<String>,
    /// The number of containers that may have the device at once. Each of them gets one of the ids
    /// that [`Device::offered_ids`] returns. `None` means that the device is not shared.
    pub replicas: Option<u16>,
    /// The health of the device, as the last scan and the [`HealthHistory`] have determined it.
    pub health: Health,
    /// The reason why the device cannot be used as a whole, although its partitions can. A health
    /// check that concerns only the whole device has failed. Such a device is not offered to the
    /// kubelet, and is unhealthy for other callers. `None` means that no such check has failed.
    pub whole_device_fault: Option<String>,
    /// The results of health checks in this scan. A [`HealthHistory`] compares them with earlier
    /// scans.
    pub deferred_checks: Vec<DeferredCheck>,
    /// The NUMA node of the device. `None` if the hardware reports none.
    pub numa: Option<u32>,
    /// The group of the device. Devices of the same group belong together, for example on one
    /// board.
    pub group: Option<String>,
    /// The connections of the device with other devices of its class.
    pub connections: Connections,
    /// The nodes of the device, with their device numbers on the host.
    pub nodes: Vec<FoundNode>,
    /// The network interfaces of the device. `None` if its class has no `netdev`.
    pub net_interfaces: Option<DeviceNetInterfaces>,
    /// Additional files that a container gets with the device.
    pub files: Vec<FoundFile>,
    /// Directories that a container gets with the device.
    pub directories: Vec<FoundDirectory>,
    /// Files and directories in masked directories that stay visible to a container with the
    /// device.
    pub unmasked_entries: Vec<UnmaskedEntry>,
    /// The environment variables that a container gets with the device.
    pub env: BTreeMap<EnvName, String>,
    /// The file from which the state of the device is read. `[prepare]` of the class changes this
    /// state for a container. `None` if the class has no `[prepare]`.
    pub state: Option<StateFile>,
    /// The attributes of the device, including those of the host.
    pub attributes: Attributes,
}

/// The network interfaces of a device, and the search that found them. The same search can find the
/// interfaces in a container's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNetInterfaces {
    pub search: NetInterfaceSearch,
    /// The interfaces that are in the host's network namespace now. An interface that was moved to
    /// a container is not among them.
    pub host_interfaces: Vec<NetInterface>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFile {
    pub path: PathBuf,
    /// The content of the file, without surrounding white space. `None` if the file cannot be read.
    pub content: Option<String>,
}

/// Finds the devices of a class, with their health as far as one scan can tell. A device that
/// cannot be read is left out with a warning, because hardware can disappear during the scan.
pub fn find_devices(class: &DeviceClass, host: &dyn HostView) -> Inventory {
    let mut inventory = scan_devices(class, host);
    let partitioned_devices = inventory
        .partitioned_devices
        .iter_mut()
        .chain(&mut inventory.parts_only_devices);
    let devices = inventory.devices.iter_mut().chain(partitioned_devices);
    HealthHistory::default().update_health_with_log(devices, Instant::now(), &[]);
    inventory
}

/// Finds the devices of a class for a caller that scans repeatedly. The caller passes the devices
/// to its [`HealthHistory`], which evaluates the checks that need several scans.
pub fn scan_devices(class: &DeviceClass, host: &dyn HostView) -> Inventory {
    scan_with_properties(class, host, None)
}

/// Finds the devices of a class as [`scan_devices`] does. If `properties` is `None`, reads the
/// driver properties from the file in which the host keeps them.
fn scan_with_properties(
    class: &DeviceClass,
    host: &dyn HostView,
    properties: Option<&DriverProperties>,
) -> Inventory {
    let mut inventory = Inventory::default();
    let no_attributes = Attributes::new();
    if let Some(driver_path) = &class.spec.driver_path
        && !search::has_match(driver_path, &no_attributes, host)
    {
        inventory.missing_driver_message = Some(format!("the host has no {driver_path}"));
        return inventory;
    }
    let properties = match properties {
        Some(properties) => properties.clone(),
        None => DriverProperties::read(class, host, &mut inventory.warnings),
    };
    let reader = &mut FileReader::new(host);
    match attributes::read_attributes(
        &class.spec.attributes,
        None,
        no_attributes,
        &properties,
        reader,
    ) {
        Ok(attributes) => inventory.host_attributes = attributes,
        // A host attribute is read from a file that exists only if the driver is loaded. A host
        // without the driver has no fault, so there is no warning.
        Err(read_error @ attributes::ReadError::NotFound(_)) => {
            inventory.missing_driver_message = Some(read_error.to_string());
            return inventory;
        }
        Err(read_error) => {
            inventory.warnings.push(read_error.to_string());
            inventory.missing_driver_message = Some(read_error.to_string());
            return inventory;
        }
    }
    let mut warnings_of_empty_sources = Vec::new();
    for source in &class.spec.discover {
        let (device_count, warning_count) = (inventory.devices.len(), inventory.warnings.len());
        if device_count == 0 || source.is_additional {
            add_devices(class, source, &properties, host, &mut inventory);
        }
        // A class file has several `[[discover]]` tables, because the devices are at different
        // paths with different versions of the driver. A table that finds no device is normal. Its
        // warnings are reported only if no table finds a device.
        if inventory.devices.len() == device_count {
            warnings_of_empty_sources.extend(inventory.warnings.drain(warning_count..));
        }
    }
    if inventory.devices.is_empty() {
        inventory.warnings.extend(warnings_of_empty_sources);
    }
    order::sort_devices(&mut inventory.devices);
    // Devices that this container of LXC was not given have no number. The vendors' programs do not
    // count them either.
    inaccessible_devices::take_inaccessible_devices(&mut inventory, host);
    if class.spec.device.index.is_none() {
        order::number_devices(&mut inventory.devices);
    }
    order::remove_duplicate_devices(&mut inventory);
    (inventory.partitioned_devices, inventory.parts_only_devices) =
        order::take_divided_devices(&mut inventory.devices);
    let settings = &class.settings;
    let device_lists = [
        &inventory.devices[..],
        &inventory.partitioned_devices,
        &inventory.parts_only_devices,
    ];
    let warnings = device_filters::describe_unmatched_filters(settings, &device_lists, host);
    inventory.warnings.extend(warnings);
    let hidden_devices =
        device_filters::take_hidden_devices(&mut inventory.devices, settings, host).into_iter();
    inventory.hidden_ids = hidden_devices.map(|device| device.id).collect();
    for partitioned_devices in [
        &mut inventory.partitioned_devices,
        &mut inventory.parts_only_devices,
    ] {
        device_filters::take_hidden_devices(partitioned_devices, settings, host);
    }
    if let Some(sharing) = &class.spec.sharing {
        sharing::combine_devices(sharing, &mut inventory);
    }
    inventory
}

/// Returns whether at least one path of the host matches a pattern. Returns `false` if the search
/// fails.
pub fn has_matching_path(pattern: &PathPattern, host: &dyn HostView) -> bool {
    search::has_match(pattern, &Attributes::new(), host)
}

/// Adds the devices of one `[[discover]]` table to the inventory. Adds a warning for each candidate
/// that cannot become a device.
fn add_devices(
    class: &DeviceClass,
    source: &Source,
    properties: &DriverProperties,
    host: &dyn HostView,
    inventory: &mut Inventory,
) {
    let attributes = &inventory.host_attributes;
    let (warnings, refused_candidates) =
        (&mut inventory.warnings, &mut inventory.refused_candidates);
    let candidates = source::find_candidates(
        source,
        attributes,
        properties,
        host,
        warnings,
        refused_candidates,
    );
    for candidate in candidates {
        match device::build_device(class, source, &candidate, properties, host) {
            Ok(device) => inventory.devices.push(device),
            Err(error) => inventory.warnings.push(format!("{candidate}: {error}")),
        }
    }
}

impl Device {
    /// Returns whether the partitions of the device can be offered. They can if the device is
    /// healthy, or if it is unhealthy only because of `whole_device_fault`.
    pub fn has_healthy_parts(&self) -> bool {
        match &self.health {
            Health::Healthy => true,
            Health::Unhealthy { reason } => self.whole_device_fault.as_ref() == Some(reason),
        }
    }

    /// Returns the ids under which the device is offered. A device that is not shared has only its
    /// own id. A shared device has one id for each container that may have it.
    pub fn offered_ids(&self) -> Vec<DeviceId> {
        match self.replicas {
            None => vec![self.id.clone()],
            Some(count) => (0..count)
                .map(|number| self.id.replica_id(number))
                .collect(),
        }
    }

    /// Returns whether the device is offered under `id`. A device that is not shared is offered
    /// under its own id. A shared device is offered under the ids of its shares, such as
    /// `npu-0::1`.
    pub fn is_offered_as(&self, id: &str) -> bool {
        match self.replicas {
            None => self.id.as_str() == id,
            Some(_) => self.has_replica(id),
        }
    }

    /// Returns whether a container that got the device under `id` has this device. In contrast to
    /// [`Device::is_offered_as`], `id` may be from a time when the device had another number of
    /// replicas: its own id, or the id of a share with any number.
    pub fn is_recorded_as(&self, id: &str) -> bool {
        let share_number = id
            .strip_prefix(self.id.as_str())
            .map(|suffix| suffix.strip_prefix("::"));
        match share_number {
            Some(Some(number)) => number.parse::<u16>().is_ok(),
            Some(None) => id == self.id.as_str(),
            None => false,
        }
    }

    /// Returns whether the id tells the device apart from all other hardware of the host, whatever
    /// its class. An id such as a PCI address, a UUID or a long serial number does. A short id such
    /// as `0` or `npu-0` can also be the id of a device of another class.
    pub fn has_unique_id(&self) -> bool {
        self.id.as_str().len() >= MIN_UNIQUE_ID_BYTES
    }

    /// Returns whether `id` is the id of a share of this device, such as `npu-0::1` for `npu-0`.
    /// The number after `::` must be smaller than the number of replicas.
    pub fn has_replica(&self, id: &str) -> bool {
        let number = id
            .strip_prefix(self.id.as_str())
            .and_then(|suffix| suffix.strip_prefix("::"))
            .and_then(|number| number.parse().ok());
        number.is_some_and(|number: u16| self.replicas.is_some_and(|count| number < count))
    }
}

//! Hides devices of a class, so that no container gets them. `except` in config.toml lists devices
//! to hide. If there is `only`, all devices that it does not list are hidden, too.

use super::Device;
use super::names::DeviceNames;
use super::node_paths::{NodePaths, PathTarget, parse_dev_path};
use crate::class::{ClassConfig, DeviceFilter};
use crate::host::HostView;
use crate::name::{IndexRange, excerpt, is_usb_port};

/// Removes the hidden devices from `devices` and returns them. A device is hidden if an entry of
/// `except` matches it. If config.toml has `only`, a device is also hidden if no entry of `only`
/// matches it.
pub(super) fn take_hidden_devices(
    devices: &mut Vec<Device>,
    settings: &ClassConfig,
    host: &dyn HostView,
) -> Vec<Device> {
    if settings.allowed_devices.is_none() && settings.hidden_devices.is_empty() {
        return Vec::new();
    }
    let device_index = DeviceIndex::new(devices, host);
    let mut hidden_flags = vec![settings.allowed_devices.is_some(); devices.len()];
    for filter in settings.allowed_devices.iter().flatten() {
        device_index
            .find_positions(filter)
            .into_iter()
            .for_each(|index| hidden_flags[index] = false);
    }
    for filter in &settings.hidden_devices {
        device_index
            .find_positions(filter)
            .into_iter()
            .for_each(|index| hidden_flags[index] = true);
    }
    let mut hidden_flags = hidden_flags.into_iter();
    devices
        .extract_if(.., |_| hidden_flags.next() == Some(true))
        .collect()
}

/// Returns a warning for each entry of `only` and `except` that matches no device of this host. If
/// the host has no devices of the class, there are no warnings, because several hosts may share the
/// same config.toml.
pub(super) fn describe_unmatched_filters(
    settings: &ClassConfig,
    devices: &[&[Device]],
    host: &dyn HostView,
) -> Vec<String> {
    let allowed_filters = settings
        .allowed_devices
        .iter()
        .flatten()
        .map(|filter| ("only", filter));
    let hidden_filters = settings
        .hidden_devices
        .iter()
        .map(|filter| ("except", filter));
    let has_filter = settings.allowed_devices.is_some() || !settings.hidden_devices.is_empty();
    let count: usize = devices.iter().map(|devices| devices.len()).sum();
    if count == 0 || !has_filter {
        return Vec::new();
    }
    let device_indices = devices
        .iter()
        .map(|devices| DeviceIndex::new(devices, host));
    let device_indices: Vec<DeviceIndex<'_>> = device_indices.collect();
    let is_unmatched = |filter: &DeviceFilter| {
        device_indices
            .iter()
            .all(|devices| devices.find_positions(filter).is_empty())
    };
    let unmatched_filters = allowed_filters
        .chain(hidden_filters)
        .filter(|(_, filter)| is_unmatched(filter));
    let to_warning = |(key, filter): (&str, &DeviceFilter)| match filter {
        DeviceFilter::Name(name) => format!(
            "`{key}` in config.toml names {}, which no device of this host is called",
            excerpt(name)
        ),
        DeviceFilter::Attributes(_) => {
            format!("a table of `{key}` in config.toml fits no device of this host")
        }
    };
    let mut warnings: Vec<String> = unmatched_filters.map(to_warning).collect();
    if settings
        .allowed_devices
        .as_ref()
        .is_some_and(|filters| filters.iter().all(is_unmatched))
    {
        warnings.push(format!(
            "`only` in config.toml fits none of the {count} devices of this host, so that no \
             container gets any"
        ));
    }
    warnings
}

/// The devices of a class with an index of their names. It finds the devices that an entry of
/// `only` or `except` selects.
struct DeviceIndex<'a> {
    devices: &'a [Device],
    names: DeviceNames<'a>,
    host: &'a dyn HostView,
}

impl<'a> DeviceIndex<'a> {
    fn new(devices: &'a [Device], host: &'a dyn HostView) -> Self {
        let names = DeviceNames::new(devices);
        DeviceIndex {
            devices,
            names,
            host,
        }
    }

    /// Returns the positions in `devices` of the devices that a filter selects. A filter is either
    /// a table of attributes or a text. The text is a device name, a range of indexes such as
    /// `0-3`, or the path of a device node.
    fn find_positions(&self, filter: &DeviceFilter) -> Vec<usize> {
        match filter {
            DeviceFilter::Name(name) => match parse_dev_path(name) {
                None => self.find_by_name(name),
                Some(path) => match NodePaths::new(self.devices, self.host).find(path) {
                    PathTarget::Absent(_) | PathTarget::NoDevice(_) => Vec::new(),
                    PathTarget::Devices { ids, .. } => {
                        self.find_selected(&|device| ids.contains(&device.id))
                    }
                },
            },
            DeviceFilter::Attributes(values) => self.find_selected(&|device| {
                let mut values = values.iter();
                values.all(|(name, value)| device.attributes.get(name) == Some(value))
            }),
        }
    }

    /// Returns the positions of the devices that have the name, or whose index is in the range that
    /// the name stands for. A name in quotes, as `boathook list` prints some, is no range. A USB
    /// port is none either if devices of the host are named by their ports. While no device is
    /// plugged in at port `1-2`, such a range would select other devices.
    fn find_by_name(&self, name: &str) -> Vec<usize> {
        let quoted_name = name
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'));
        let positions = self.names.find(quoted_name.unwrap_or(name));
        let may_be_range = positions.is_empty()
            && quoted_name.is_none()
            && !(is_usb_port(name) && self.has_usb_port_names());
        let range = match IndexRange::parse(name) {
            Some(Ok(range)) if may_be_range => range,
            _ => return positions,
        };
        self.find_selected(&|device| {
            let index = device.index.as_ref().and_then(|index| index.parse().ok());
            index.is_some_and(|index: u32| (range.first..=range.last).contains(&index))
        })
    }

    fn has_usb_port_names(&self) -> bool {
        let mut aliases = self.devices.iter().flat_map(|device| &device.aliases);
        aliases.any(|alias| is_usb_port(alias))
    }

    fn find_selected(&self, is_selected: &dyn Fn(&Device) -> bool) -> Vec<usize> {
        let positions = 0..self.devices.len();
        positions
            .filter(|index| is_selected(&self.devices[*index]))
            .collect()
    }
}

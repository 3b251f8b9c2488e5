//! Hides devices of a class according to `only` and `except` in config.toml.

use super::Device;
use super::names::DeviceNames;
use super::node_paths::{NamedByPath, NodePaths, as_path};
use crate::class::{ClassConfig, DeviceFilter};
use crate::host::HostView;
use crate::name::{IndexRange, excerpt};

/// Removes the hidden devices from `devices` and returns them. A device is hidden if an entry of
/// `except` matches it, or if there is `only` and none of its entries matches the device.
pub(super) fn take_hidden(
    devices: &mut Vec<Device>,
    settings: &ClassConfig,
    host: &dyn HostView,
) -> Vec<Device> {
    if settings.only.is_none() && settings.except.is_empty() {
        return Vec::new();
    }
    let filtered = FilteredDevices::new(devices, host);
    let mut is_hidden = vec![settings.only.is_some(); devices.len()];
    for filter in settings.only.iter().flatten() {
        filtered
            .find(filter)
            .into_iter()
            .for_each(|index| is_hidden[index] = false);
    }
    for filter in &settings.except {
        filtered
            .find(filter)
            .into_iter()
            .for_each(|index| is_hidden[index] = true);
    }
    let mut is_hidden = is_hidden.into_iter();
    devices
        .extract_if(.., |_| is_hidden.next() == Some(true))
        .collect()
}

/// Returns a warning for each entry of `only` and `except` that matches no device of this host.
/// A host without devices of the class gives no warning, because one config.toml may serve
/// several hosts.
pub(super) fn without_device(
    settings: &ClassConfig,
    devices: &[&[Device]],
    host: &dyn HostView,
) -> Vec<String> {
    let only = settings
        .only
        .iter()
        .flatten()
        .map(|filter| ("only", filter));
    let except = settings.except.iter().map(|filter| ("except", filter));
    let has_filter = settings.only.is_some() || !settings.except.is_empty();
    let count: usize = devices.iter().map(|devices| devices.len()).sum();
    if count == 0 || !has_filter {
        return Vec::new();
    }
    let filtered = devices
        .iter()
        .map(|devices| FilteredDevices::new(devices, host));
    let filtered: Vec<FilteredDevices<'_>> = filtered.collect();
    let is_idle = |filter: &DeviceFilter| {
        filtered
            .iter()
            .all(|devices| devices.find(filter).is_empty())
    };
    let idle = only.chain(except).filter(|(_, filter)| is_idle(filter));
    let warning = |(key, filter): (&str, &DeviceFilter)| match filter {
        DeviceFilter::Name(name) => format!(
            "`{key}` in config.toml names {}, which no device of this host is called",
            excerpt(name)
        ),
        DeviceFilter::Attributes(_) => {
            format!("a table of `{key}` in config.toml fits no device of this host")
        }
    };
    let mut warnings: Vec<String> = idle.map(warning).collect();
    if settings
        .only
        .as_ref()
        .is_some_and(|only| only.iter().all(is_idle))
    {
        warnings.push(format!(
            "`only` in config.toml fits none of the {count} devices of this host, so that no \
             container gets any"
        ));
    }
    warnings
}

/// A list of devices with an index of their names, in which filters are looked up.
struct FilteredDevices<'a> {
    devices: &'a [Device],
    names: DeviceNames<'a>,
    host: &'a dyn HostView,
}

impl<'a> FilteredDevices<'a> {
    fn new(devices: &'a [Device], host: &'a dyn HostView) -> Self {
        let names = DeviceNames::new(devices);
        FilteredDevices {
            devices,
            names,
            host,
        }
    }

    /// Returns the positions of the devices that a filter matches. A text means the same devices
    /// as in a request: a name, an index range, or the path of a node.
    fn find(&self, filter: &DeviceFilter) -> Vec<usize> {
        match filter {
            DeviceFilter::Name(name) => match as_path(name) {
                None => self.find_name(name),
                Some(path) => match NodePaths::new(self.devices, self.host).find(path) {
                    NamedByPath::Absent(_) | NamedByPath::Nothing(_) => Vec::new(),
                    NamedByPath::Devices { ids, .. } => {
                        self.find_if(&|device| ids.contains(&device.id))
                    }
                },
            },
            DeviceFilter::Attributes(wanted) => self.find_if(&|device| {
                let mut wanted = wanted.iter();
                wanted.all(|(name, value)| device.attributes.get(name) == Some(value))
            }),
        }
    }

    fn find_name(&self, name: &str) -> Vec<usize> {
        let named = self.names.find(name);
        let range = match IndexRange::parse(name) {
            Some(Ok(range)) if named.is_empty() => range,
            _ => return named,
        };
        self.find_if(&|device| {
            let index = device.index.as_ref().and_then(|index| index.parse().ok());
            index.is_some_and(|index: u32| (range.first..=range.last).contains(&index))
        })
    }

    fn find_if(&self, is_meant: &dyn Fn(&Device) -> bool) -> Vec<usize> {
        let positions = 0..self.devices.len();
        positions
            .filter(|index| is_meant(&self.devices[*index]))
            .collect()
    }
}

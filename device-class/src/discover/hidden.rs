//! The devices that config.toml hides.

use super::Device;
use crate::class::{ClassConfig, DeviceFilter};
use crate::name::{canonical, excerpt};

/// Whether the device does not exist as far as this host's users are concerned.
pub(super) fn is_hidden(device: &Device, settings: &ClassConfig) -> bool {
    let fits = |filter: &DeviceFilter| fits(filter, device);
    let is_only = |only: &Vec<DeviceFilter>| only.iter().any(fits);
    !settings.only.as_ref().is_none_or(is_only) || settings.except.iter().any(fits)
}

/// What in `only` and `except` fits none of the devices of this host, as warnings. Where
/// there are no devices of the class, nothing is known of them.
pub(super) fn without_device<'d>(
    settings: &ClassConfig,
    devices: impl Iterator<Item = &'d Device> + Clone,
) -> Vec<String> {
    let count = devices.clone().count();
    if count == 0 {
        return Vec::new();
    }
    let only = settings
        .only
        .iter()
        .flatten()
        .map(|filter| ("only", filter));
    let except = settings.except.iter().map(|filter| ("except", filter));
    let is_idle = |filter: &DeviceFilter| !devices.clone().any(|device| fits(filter, device));
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

fn fits(filter: &DeviceFilter, device: &Device) -> bool {
    match filter {
        DeviceFilter::Name(name) => {
            let wanted = canonical(name);
            let names = device.aliases.iter().chain(&device.index);
            let mut names = names.map(String::as_str).chain([device.id.as_str()]);
            names.any(|name| canonical(name) == wanted)
        }
        DeviceFilter::Attributes(wanted) => wanted
            .iter()
            .all(|(name, value)| device.attributes.get(name) == Some(value)),
    }
}

//! The devices that config.toml hides.

use super::Device;
use crate::class::{DeviceFilter, Settings};
use crate::name::canonical;

/// Whether the device does not exist as far as this host's users are concerned.
pub(super) fn is_hidden(device: &Device, settings: &Settings) -> bool {
    let fits = |filter: &DeviceFilter| fits(filter, device);
    let is_only = |only: &Vec<DeviceFilter>| only.iter().any(fits);
    !settings.only.as_ref().is_none_or(is_only) || settings.except.iter().any(fits)
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

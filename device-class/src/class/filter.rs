//! Which devices of a host there are, as far as its users are concerned.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::discover::Device;
use crate::name::AttributeName;
use crate::request::canonical;

/// Some devices: by a name that a request may use, or by attributes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a device's id, or a table of attributes")]
pub enum DeviceFilter {
    /// An id, an index or an alias.
    Name(String),
    /// All of these attributes have these values.
    Attributes(BTreeMap<AttributeName, String>),
}

impl DeviceFilter {
    /// Whether the device is meant.
    pub(crate) fn fits(&self, device: &Device) -> bool {
        match self {
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
}

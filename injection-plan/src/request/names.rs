//! The names of the devices of a host, for requests.

use std::collections::HashMap;

use device_class::discover::Device;
use device_class::name::canonical;

/// The names of the devices of a class. It is built in one pass over the
/// devices; a look-up takes constant time.
pub(super) struct DeviceNames<'a> {
    devices: &'a [Device],
    by_name: HashMap<String, Named>,
}

/// The devices of one name, as positions.
#[derive(Default)]
struct Named {
    ids: Vec<usize>,
    indices: Vec<usize>,
    aliases: Vec<usize>,
}

/// The positions of the devices with a name.
#[derive(Clone, Copy)]
pub(super) enum Meaning<'a> {
    One(usize),
    /// Those with the same index or alias; for the same name the same slice.
    All(&'a [usize]),
}

impl<'a> DeviceNames<'a> {
    pub(super) fn of(devices: &'a [Device]) -> Self {
        let mut by_name: HashMap<String, Named> = HashMap::new();
        for (at, device) in devices.iter().enumerate() {
            let id = canonical(device.id.as_str());
            by_name.entry(id).or_default().ids.push(at);
            if let Some(index) = &device.index {
                let named = by_name.entry(canonical(index)).or_default();
                named.indices.push(at);
            }
            for alias in &device.aliases {
                let named = by_name.entry(canonical(alias)).or_default();
                named.aliases.push(at);
            }
        }
        Self { devices, by_name }
    }

    /// The devices with a name. Ids take precedence over indices, indices over
    /// aliases, and aliases over ids of replicas. Case is ignored, except for
    /// ids that differ only in case.
    pub(super) fn meaning(&self, name: &str) -> Option<Meaning<'_>> {
        if let Some(named) = self.by_name.get(&canonical(name)) {
            let is_exact = |at: &&usize| self.devices[**at].id.as_str() == name;
            let id = match named.ids.as_slice() {
                [only] => Some(only),
                ids => ids.iter().find(is_exact),
            };
            if let Some(at) = id {
                return Some(Meaning::One(*at));
            }
            let several = [&named.indices, &named.aliases];
            let found = several.into_iter().find(|found| !found.is_empty())?;
            return Some(Meaning::All(found));
        }
        let (id, number) = name.rsplit_once("::")?;
        let ids = &self.by_name.get(&canonical(id))?.ids;
        let is_replica = |at: &&usize| {
            let device = &self.devices[**at];
            device.has_replica(&format!("{}::{number}", device.id))
        };
        ids.iter().find(is_replica).copied().map(Meaning::One)
    }
}

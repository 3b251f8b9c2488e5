//! The names of the devices of a class: which devices a text means, in a request and in
//! `only` and `except` of config.toml.

use std::collections::HashMap;

use super::Device;
use crate::name::canonical;

/// The names of some devices of one class. It is built in one pass over the devices; a
/// look-up takes the time of its result.
pub struct DeviceNames<'a> {
    devices: &'a [Device],
    /// By [`canonical`] text.
    by_name: HashMap<String, NamedDevices>,
}

/// The devices of one name, as positions in the list of devices.
#[derive(Default)]
struct NamedDevices {
    ids: Vec<usize>,
    aliases: Vec<usize>,
    indices: Vec<usize>,
}

/// A kind of name. A text means the devices of the first kind in which some device has it:
/// texts of a device itself count before its index, which depends on the other devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Id,
    Alias,
    Index,
    /// The id of one replica of a shared device, `ID::NUMBER`.
    Replica,
}

impl NameKind {
    /// The kinds in the order in which they count.
    pub const IN_ORDER: [Self; 4] = [Self::Id, Self::Alias, Self::Index, Self::Replica];
}

impl<'a> DeviceNames<'a> {
    pub fn new(devices: &'a [Device]) -> Self {
        let mut by_name: HashMap<String, NamedDevices> = HashMap::new();
        for (position, device) in devices.iter().enumerate() {
            let id = canonical(device.id.as_str());
            by_name.entry(id).or_default().ids.push(position);
            for alias in &device.aliases {
                let named = by_name.entry(canonical(alias)).or_default();
                named.aliases.push(position);
            }
            if let Some(index) = &device.index {
                let named = by_name.entry(canonical(index)).or_default();
                named.indices.push(position);
            }
        }
        // Two aliases of a device may be the same text.
        for named in by_name.values_mut() {
            named.aliases.dedup();
        }
        Self { devices, by_name }
    }

    /// Finds the positions of the devices that a text means; none if no device is called so.
    pub fn find(&self, name: &str) -> Vec<usize> {
        let mut found = NameKind::IN_ORDER
            .into_iter()
            .map(|kind| self.find_kind(name, kind));
        found.find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Finds the positions of the devices that have a text as a name of this kind. Several devices
    /// may have one alias or index. Only if none has the text as it is, its case is ignored,
    /// but not for ids that differ in nothing else.
    pub fn find_kind(&self, name: &str, kind: NameKind) -> Vec<usize> {
        if kind == NameKind::Replica {
            return self.find_replica(name).into_iter().collect();
        }
        let Some(named) = self.by_name.get(&canonical(name)) else {
            return Vec::new();
        };
        let positions = match kind {
            NameKind::Id | NameKind::Replica => &named.ids,
            NameKind::Alias => &named.aliases,
            NameKind::Index => &named.indices,
        };
        let has_text = |position: &usize| self.devices[*position].has_name(name, kind);
        let exact: Vec<usize> = positions.iter().copied().filter(has_text).collect();
        if !exact.is_empty() {
            return exact;
        }
        match kind {
            NameKind::Id if positions.len() > 1 => Vec::new(),
            _ => positions.clone(),
        }
    }

    fn find_replica(&self, name: &str) -> Option<usize> {
        let (id, number) = name.rsplit_once("::")?;
        let ids = &self.by_name.get(&canonical(id))?.ids;
        let is_replica = |position: &usize| {
            let device = &self.devices[*position];
            device.has_replica(&format!("{}::{number}", device.id))
        };
        ids.iter().copied().find(is_replica)
    }
}

impl Device {
    /// Whether it has exactly this text as a name of the kind.
    fn has_name(&self, text: &str, kind: NameKind) -> bool {
        match kind {
            NameKind::Id => self.id.as_str() == text,
            NameKind::Alias => self.aliases.iter().any(|alias| alias == text),
            NameKind::Index => self.index.as_deref() == Some(text),
            NameKind::Replica => self.has_replica(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::class::DeviceClass;
    use crate::discover;
    use crate::host::RecordedHost;

    /// Devices `dev-0`, `dev-1`, … of which each has such an id, aliases and index.
    fn devices(names: &[(&str, &[&str], &str)]) -> Vec<Device> {
        let class = "version = 1\nresource = 'a.com/b'\nrequest = { env = 'B' }\n\
            discover = [{ count = 1 }]\ndevice = { id = 'dev' }\nsharing = { replicas = 2 }\n";
        let name = "b".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, Path::new("b.toml"), class).unwrap();
        let first = discover::devices(&class, &RecordedHost::parse("").unwrap()).devices;
        let devices = names.iter().map(|(id, aliases, index)| Device {
            id: (*id).to_owned().try_into().unwrap(),
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
            index: Some((*index).to_owned()),
            ..first[0].clone()
        });
        devices.collect()
    }

    #[test]
    fn a_text_means_the_first_kind_of_name_that_it_is() {
        let devices = devices(&[
            ("npu-0", &["1", "Every", "same", "same"], "0"),
            ("npu-1", &["npu-0", "every", "0000:03:00.0"], "1"),
            ("NPU-1", &["EVERY", "x::1"], "2"),
            ("2", &["npu-2"], "3"),
        ]);
        let names = DeviceNames::new(&devices);
        for (text, positions) in [
            ("npu-0", vec![0]),
            ("NPU-0", vec![0]),
            ("npu-1", vec![1]),
            ("NPU-1", vec![2]),
            // Neither of the two ids.
            ("Npu-1", vec![]),
            ("1", vec![0]),
            ("2", vec![3]),
            ("0", vec![0]),
            ("3", vec![3]),
            ("same", vec![0]),
            ("every", vec![1]),
            ("EVERY", vec![2]),
            ("eveRY", vec![0, 1, 2]),
            ("3:03:00.0", vec![]),
            ("00000000:03:00.0", vec![1]),
            ("npu-0::1", vec![0]),
            ("npu-0::2", vec![]),
            ("x::1", vec![2]),
            ("", vec![]),
            ("4", vec![]),
        ] {
            assert_eq!(names.find(text), positions, "{text}");
        }
    }
}

//! Finds the devices of a class by name. Names occur in requests, and in `only` and `except` of
//! config.toml.

use std::collections::HashMap;

use super::Device;
use crate::name::canonicalize_name;

/// An index of the devices of one class by their names. It is a hash map, so that the time of a
/// look-up does not grow with the number of devices.
pub struct DeviceNames<'a> {
    devices: &'a [Device],
    /// Maps the canonical form of a name, as [`canonicalize_name`] returns it, to the positions of
    /// the devices that have the name.
    positions_by_name: HashMap<String, NamePositions>,
}

/// The positions of all devices that have one name, in the list of devices. A position is in the
/// list for the kind of this name.
#[derive(Default)]
struct NamePositions {
    ids: Vec<usize>,
    aliases: Vec<usize>,
    indices: Vec<usize>,
}

/// A kind of name of a device. If a text is the id of one device and the index of another, the kind
/// that comes first in [`NameKind::LOOKUP_ORDER`] decides. The index comes after id and alias,
/// because it can change when a device is added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Id,
    Alias,
    Index,
    /// The id of one share of a shared device, `ID::NUMBER`, such as `npu-0::1`.
    Replica,
}

impl NameKind {
    /// All kinds of names. A text is looked up as each kind in this order, until a device has the
    /// name.
    pub const LOOKUP_ORDER: [Self; 4] = [Self::Id, Self::Alias, Self::Index, Self::Replica];
}

impl<'a> DeviceNames<'a> {
    pub fn new(devices: &'a [Device]) -> Self {
        let mut positions_by_name: HashMap<String, NamePositions> = HashMap::new();
        for (position, device) in devices.iter().enumerate() {
            let id = canonicalize_name(device.id.as_str());
            positions_by_name.entry(id).or_default().ids.push(position);
            for alias in &device.aliases {
                let positions = positions_by_name
                    .entry(canonicalize_name(alias))
                    .or_default();
                positions.aliases.push(position);
            }
            if let Some(index) = &device.index {
                let positions = positions_by_name
                    .entry(canonicalize_name(index))
                    .or_default();
                positions.indices.push(position);
            }
        }
        // A device may have the same alias twice, but must be found once.
        for positions in positions_by_name.values_mut() {
            positions.aliases.dedup();
        }
        Self {
            devices,
            positions_by_name,
        }
    }

    /// Returns the positions of the devices that have the name `name`. The kinds of names are tried
    /// in the order of [`NameKind::LOOKUP_ORDER`], and the first kind with a device decides.
    pub fn find(&self, name: &str) -> Vec<usize> {
        let mut results = NameKind::LOOKUP_ORDER
            .into_iter()
            .map(|kind| self.find_by_kind(name, kind));
        results
            .find(|positions| !positions.is_empty())
            .unwrap_or_default()
    }

    /// Returns the positions of the devices whose name of this kind is `name`. Several devices may
    /// have the same alias or index. If no device has exactly this name, the canonical forms are
    /// compared, which are in lower case. If the canonical forms of several ids are the same, no
    /// device is returned.
    pub fn find_by_kind(&self, name: &str, kind: NameKind) -> Vec<usize> {
        if kind == NameKind::Replica {
            return self.find_replica(name).into_iter().collect();
        }
        let Some(name_positions) = self.positions_by_name.get(&canonicalize_name(name)) else {
            return Vec::new();
        };
        let positions = match kind {
            NameKind::Id | NameKind::Replica => &name_positions.ids,
            NameKind::Alias => &name_positions.aliases,
            NameKind::Index => &name_positions.indices,
        };
        let has_exact_name = |position: &usize| self.devices[*position].has_name(name, kind);
        let exact_matches: Vec<usize> = positions.iter().copied().filter(has_exact_name).collect();
        if !exact_matches.is_empty() {
            return exact_matches;
        }
        match kind {
            NameKind::Id if positions.len() > 1 => Vec::new(),
            _ => positions.clone(),
        }
    }

    fn find_replica(&self, name: &str) -> Option<usize> {
        let (id, number) = name.rsplit_once("::")?;
        let ids = &self.positions_by_name.get(&canonicalize_name(id))?.ids;
        let is_replica = |position: &usize| {
            let device = &self.devices[*position];
            device.has_replica(&format!("{}::{number}", device.id))
        };
        ids.iter().copied().find(is_replica)
    }
}

impl Device {
    /// Returns whether `text` is exactly one of the device's names of this kind, with the same
    /// case.
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

    /// Makes one device for each tuple of id, aliases and index.
    fn devices(names: &[(&str, &[&str], &str)]) -> Vec<Device> {
        let class = "version = 1\nresource = 'a.com/b'\nrequest = { env = 'B' }\n\
            discover = [{ count = 1 }]\ndevice = { id = 'dev' }\nsharing = { replicas = 2 }\n";
        let name = "b".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(name, Path::new("b.toml"), class).unwrap();
        let first = discover::find_devices(&class, &RecordedHost::parse("").unwrap()).devices;
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
            // Two ids match only if case is ignored, so the text names no device.
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

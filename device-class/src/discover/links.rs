//! Finds the connections between devices, and computes how close two devices are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{DeviceError, attributes, paths};
use crate::class::{DeviceSpec, LinkPeers};
use crate::driver_properties::DriverProperties;
use crate::host::HostView;
use crate::template::Attributes;

/// The connections of one device with other devices of its class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connections {
    /// The device's directory in sysfs, with symbolic links resolved. The paths of devices below
    /// the same PCI switch have a long common prefix.
    sysfs_dir: Option<PathBuf>,
    /// The name of this device in the `peers` of other devices.
    name: Option<String>,
    /// Maps the name of each directly connected device to the bandwidth of the connection. If files
    /// describe the links, it is the sum of [`ONE_HOP_BANDWIDTH`] divided by each link's weight. If
    /// driver properties describe the links, it is their number.
    peers: BTreeMap<String, usize>,
}

/// The bandwidth of a link with the weight 1. A link with the weight 2 has half of it.
const ONE_HOP_BANDWIDTH: usize = 10_000;

/// The distance between two devices if the sysfs directory of one of them is not known. It is also
/// the upper limit of all distances.
const UNKNOWN_DISTANCE: usize = 64;

impl Connections {
    /// Creates the connections of a device. `peers` maps the name of each connected device to the
    /// bandwidth of the connection.
    pub fn new(
        sysfs_dir: Option<PathBuf>,
        name: Option<String>,
        peers: BTreeMap<String, usize>,
    ) -> Self {
        Connections {
            sysfs_dir,
            name,
            peers,
        }
    }

    /// Returns the device's directory in sysfs, with symbolic links resolved. Returns `None` if the
    /// class does not name the directory.
    pub fn sysfs_dir(&self) -> Option<&Path> {
        self.sysfs_dir.as_deref()
    }

    pub fn has_links(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Returns the bandwidth of the direct connection between two devices, or 0 if there is none.
    /// The unit differs between classes, so only values of the same class can be compared.
    pub fn bandwidth(&self, other: &Self) -> usize {
        let directed_bandwidth = |device: &Self, other: &Self| {
            let name = other.name.as_ref();
            let bandwidth = name.and_then(|name| device.peers.get(name));
            bandwidth.copied().unwrap_or(0)
        };
        directed_bandwidth(self, other).max(directed_bandwidth(other, self))
    }

    /// Returns the distance between two devices. It is 0 if they have a direct connection.
    /// Otherwise it is the number of steps between their directories in sysfs, which grows with the
    /// number of bridges between the devices.
    pub fn distance(&self, other: &Self) -> usize {
        if self.bandwidth(other) > 0 {
            return 0;
        }
        let (Some(path), Some(other_path)) = (&self.sysfs_dir, &other.sysfs_dir) else {
            return UNKNOWN_DISTANCE;
        };
        let common_components = path
            .iter()
            .zip(other_path.iter())
            .take_while(|(a, b)| a == b);
        let common_length = common_components.count();
        let steps = path.iter().count() + other_path.iter().count() - 2 * common_length;
        (1 + steps).min(UNKNOWN_DISTANCE)
    }
}

/// Finds the direct connections of a device. `[device.links]` of the class names the driver
/// properties that list them, or the files that describe one connection each.
pub(super) fn find_connections(
    spec: &DeviceSpec,
    sysfs_dir: Option<PathBuf>,
    attributes: &Attributes,
    properties: &DriverProperties,
    host: &dyn HostView,
) -> Result<Connections, DeviceError> {
    let Some(links) = &spec.links else {
        return Ok(Connections::new(sysfs_dir, None, BTreeMap::new()));
    };
    let mut peers: BTreeMap<String, usize> = BTreeMap::new();
    match &links.peers {
        LinkPeers::DriverProperty(key) => {
            for value in properties.values(&key.fill(attributes)?) {
                let peer = value.split(' ').next().unwrap_or_default();
                *peers.entry(peer.to_owned()).or_default() += 1;
            }
        }
        LinkPeers::Files {
            path_pattern,
            peer_key,
        } => {
            for path_match in paths::find_matches(path_pattern, attributes, host)? {
                let read_value_of_key =
                    |key: &str| attributes::read_keyed_value(&path_match.path, key, host);
                let kind = links.kind_key.as_deref().and_then(read_value_of_key);
                let is_used = kind.is_some_and(|kind| links.used_kinds.contains(&kind));
                if links.kind_key.is_some() && !is_used {
                    continue;
                }
                let weight = links.weight_key.as_deref().and_then(read_value_of_key);
                let weight = weight.and_then(|weight| weight.parse().ok());
                let bandwidth = weight.map_or(ONE_HOP_BANDWIDTH, |weight: usize| {
                    ONE_HOP_BANDWIDTH / weight.max(1)
                });
                if let Some(peer) = read_value_of_key(peer_key) {
                    *peers.entry(peer).or_default() += bandwidth.max(1);
                }
            }
        }
    }
    let name = links.name.fill(attributes)?;
    Ok(Connections::new(sysfs_dir, Some(name), peers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect_to_bus(sysfs_dir: &str) -> Connections {
        Connections {
            sysfs_dir: Some(sysfs_dir.into()),
            ..Connections::default()
        }
    }

    #[test]
    fn devices_below_one_switch_are_nearer_and_linked_ones_nearest() {
        let root = "/sys/devices/pci0000:15";
        let one = connect_to_bus(&format!("{root}/0000:15:01.0/0000:16:00.0/0000:17:00.0"));
        let same_switch = connect_to_bus(&format!("{root}/0000:15:01.0/0000:16:00.0/0000:18:00.0"));
        let same_root = connect_to_bus(&format!("{root}/0000:15:02.0/0000:26:00.0/0000:27:00.0"));
        let elsewhere = connect_to_bus("/sys/devices/pci0000:c7/0000:c7:01.0/0000:ca:00.0");
        let distances = [&same_switch, &same_root, &elsewhere].map(|other| one.distance(other));
        assert!(distances.is_sorted_by(|a, b| a < b), "{distances:?}");
        assert!(distances[2] < one.distance(&Connections::default()));
        let linked = Connections {
            name: Some("7".into()),
            ..elsewhere
        };
        let one = Connections {
            peers: [("7".to_owned(), 1)].into(),
            ..one
        };
        assert_eq!((one.distance(&linked), linked.distance(&one)), (0, 0));
    }
}

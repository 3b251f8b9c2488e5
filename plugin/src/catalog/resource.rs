//! A resource and its devices.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use device_class::DeviceClass;
use device_class::class::{Preference, ReplicaCount};
use device_class::discover::{Connections, Health};
use device_class::name::{ClassName, DeviceId, EnvName, ResourceName};
use kubelet_api::deviceplugin::{Device, ListAndWatchResponse, NumaNode, TopologyInfo};
use kubelet_api::{HEALTHY, UNHEALTHY};

use super::id_index::IdIndex;

/// One extended resource of the node, and all its devices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    pub(crate) name: ResourceName,
    pub(crate) terms: Arc<Terms>,
    devices: Vec<AdvertisedDevice>,
    by_id: IdIndex,
    /// The number of the piece of hardware of each device, by position. Shares of one device have
    /// the same number.
    hardware: Vec<u32>,
}

/// The properties that all devices of a class have in common.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    pub(crate) class: ClassName,
    /// The variable with which a container requests devices of the class.
    pub(crate) request_env: EnvName,
    /// The variable with the number of allocated shares.
    pub(crate) count_env: Option<EnvName>,
    /// The variable with the number of shares allocated in one call.
    pub(crate) call_count_env: Option<EnvName>,
    /// The maximum number of shares that one container may have. `None` means any number.
    pub(crate) max_per_container: Option<u16>,
    /// Whether all shares of one container must be of the same device.
    pub(crate) one_device: bool,
    /// Whether the engine brings the hook, by the devices' names in CDI.
    pub(crate) by_cdi: bool,
    /// Whether the resource exists only to show the number of devices, and cannot be
    /// allocated.
    pub(crate) count_only: bool,
    pub(crate) placement: Preference,
}

impl Terms {
    pub(crate) fn from_class(class: &DeviceClass, by_cdi: bool) -> Self {
        let sharing = class.spec.sharing.as_ref();
        Terms {
            class: class.name.clone(),
            request_env: class.spec.request.env.clone(),
            count_env: sharing.and_then(|sharing| sharing.count_env.clone()),
            call_count_env: sharing.and_then(|sharing| sharing.call_count_env.clone()),
            max_per_container: class.settings.max_per_container.map(ReplicaCount::get),
            one_device: sharing.is_some_and(|sharing| sharing.one_device),
            by_cdi,
            count_only: false,
            placement: class.spec.allocate.placement,
        }
    }

    /// Returns the terms of the resource that shows how many devices a class has.
    pub(crate) fn of_count(class: &DeviceClass) -> Self {
        Terms {
            count_only: true,
            ..Terms::from_class(class, false)
        }
    }
}

/// One device as it is advertised to the kubelet. A node may have tens of thousands of them.
/// Shares of the same device have their common data in shared pointers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdvertisedDevice {
    /// The id of the device or share, which the kubelet and requests use.
    pub(crate) id: DeviceId,
    pub(crate) health: Health,
    pub(crate) numa: Option<u32>,
    /// The group of the device. A container preferably gets devices of the same group.
    pub(crate) group: Option<String>,
    pub(crate) connections: Arc<Connections>,
    /// The id of the device to which the share belongs. `None` means that this is not a share.
    pub(crate) share_of: Option<Arc<DeviceId>>,
    /// The environment variables that a container gets with the device.
    pub(crate) env: Arc<BTreeMap<EnvName, String>>,
}

impl Resource {
    /// Creates a resource with its devices, which must be in the order of their indices and
    /// have unique ids. The devices of discovery are so.
    pub(crate) fn new(
        name: ResourceName,
        terms: Arc<Terms>,
        devices: Vec<AdvertisedDevice>,
    ) -> Self {
        let by_id = IdIndex::new(devices.len(), |position| devices[position].id.as_str());
        let hardware = number_hardware(&devices);
        Resource {
            name,
            terms,
            devices,
            by_id,
            hardware,
        }
    }

    /// The devices, in the order of their indices.
    pub(crate) fn devices(&self) -> &[AdvertisedDevice] {
        &self.devices
    }

    /// Makes all healthy devices unhealthy, with this reason.
    pub(super) fn refuse(&mut self, reason: &str) {
        for device in self.devices.iter_mut().filter(|device| device.is_healthy()) {
            let reason = reason.to_owned();
            device.health = Health::Unhealthy { reason };
        }
    }

    /// Returns the position of a device in [`Resource::devices`].
    pub(crate) fn position(&self, id: &str) -> Option<usize> {
        let id_at = |position: usize| self.devices[position].id.as_str();
        self.by_id.find(id, id_at)
    }

    /// Returns the number of the piece of hardware to which a device belongs: less than the number
    /// of devices, and the same for all shares of one device.
    pub(crate) fn hardware_number(&self, position: usize) -> usize {
        self.hardware[position] as usize
    }

    /// Returns whether [`Resource::list`] returns the same message for both resources.
    pub(crate) fn lists_the_same(&self, other: &Resource) -> bool {
        let listed = |device: &AdvertisedDevice| (device.is_healthy(), device.numa);
        self.devices.len() == other.devices.len()
            && self
                .devices
                .iter()
                .zip(&other.devices)
                .all(|(a, b)| a.id == b.id && listed(a) == listed(b))
    }

    /// Returns the message for a ListAndWatch stream.
    pub(crate) fn list(&self) -> ListAndWatchResponse {
        ListAndWatchResponse {
            devices: self.devices.iter().map(AdvertisedDevice::message).collect(),
        }
    }
}

/// Numbers the pieces of hardware of devices in the order in which they appear.
fn number_hardware(devices: &[AdvertisedDevice]) -> Vec<u32> {
    let mut numbers: HashMap<&DeviceId, u32> = HashMap::new();
    let mut next = 0..;
    let mut number = |device| {
        *numbers
            .entry(device)
            .or_insert_with(|| next.next().unwrap_or(0))
    };
    let mut last: Option<(&Arc<DeviceId>, u32)> = None;
    let mut all = Vec::with_capacity(devices.len());
    for device in devices {
        let known = last.zip(device.share_of.as_ref());
        let known = known.filter(|((before, _), shared)| Arc::ptr_eq(before, shared));
        let number = known.map_or_else(|| number(device.hardware()), |((_, number), _)| number);
        last = device.share_of.as_ref().map(|shared| (shared, number));
        all.push(number);
    }
    all
}

impl AdvertisedDevice {
    pub(crate) fn hardware(&self) -> &DeviceId {
        self.share_of.as_deref().unwrap_or(&self.id)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        matches!(self.health, Health::Healthy)
    }

    /// Returns the device's entry in the message at its maximum length, which it has while the
    /// device is unhealthy.
    pub(super) fn largest_message(&self) -> Device {
        Device {
            health: UNHEALTHY.to_owned(),
            ..self.message()
        }
    }

    fn message(&self) -> Device {
        let node = |id: u32| TopologyInfo {
            nodes: vec![NumaNode { id: id.into() }],
        };
        Device {
            id: self.id.to_string(),
            health: if self.is_healthy() {
                HEALTHY
            } else {
                UNHEALTHY
            }
            .to_owned(),
            topology: self.numa.map(node),
        }
    }
}

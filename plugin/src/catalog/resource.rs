//! An extended resource and its devices, as the kubelet sees them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use device_class::DeviceClass;
use device_class::class::{Preference, ReplicaCount};
use device_class::discover::{Connections, Health};
use device_class::name::{ClassName, DeviceId, EnvName, ResourceName};
use kubelet_api::deviceplugin::{Device, ListAndWatchResponse, NumaNode, TopologyInfo};
use kubelet_api::{HEALTHY, UNHEALTHY};

use super::id_index::IdIndex;

/// One extended resource of the node with all its devices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    pub(crate) name: ResourceName,
    pub(crate) properties: Arc<ResourceProperties>,
    devices: Vec<AdvertisedDevice>,
    by_id: IdIndex,
    /// The hardware number of each device, by position. Shares of one device have the same number.
    hardware: Vec<u32>,
}

/// The properties that all devices of a resource have in common.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResourceProperties {
    pub(crate) class: ClassName,
    /// The environment variable by which a container requests devices of the class.
    pub(crate) request_env: EnvName,
    /// The environment variable that tells a container the number of its shares.
    pub(crate) count_env: Option<EnvName>,
    /// The environment variable that tells a container the number of shares in the whole Allocate
    /// call.
    pub(crate) call_count_env: Option<EnvName>,
    /// The maximum number of shares that one container may have. `None` means any number.
    pub(crate) max_per_container: Option<u16>,
    /// Whether all shares of one container must be of the same device.
    pub(crate) one_device: bool,
    /// Whether engines call the hook because of the CDI names in the answer to Allocate.
    pub(crate) by_cdi: bool,
    /// Whether the resource only shows the number of devices and cannot be allocated.
    pub(crate) count_only: bool,
    pub(crate) placement: Preference,
}

impl ResourceProperties {
    pub(crate) fn from_class(class: &DeviceClass, by_cdi: bool) -> Self {
        let sharing = class.spec.sharing.as_ref();
        ResourceProperties {
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

    /// Builds the properties of the resource that only shows how many devices a class has.
    pub(crate) fn for_count(class: &DeviceClass) -> Self {
        ResourceProperties {
            count_only: true,
            ..ResourceProperties::from_class(class, false)
        }
    }
}

/// One device or share as it is advertised to the kubelet. Shares of one device point to their
/// common data, because a node may have tens of thousands of shares.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdvertisedDevice {
    /// The id of the device or share, by which the kubelet and requests name it.
    pub(crate) id: DeviceId,
    pub(crate) health: Health,
    pub(crate) numa: Option<u32>,
    /// The group of the device. A container gets devices of one group where possible.
    pub(crate) group: Option<String>,
    pub(crate) connections: Arc<Connections>,
    /// The id of the device to which this share belongs. `None` means that this is a whole device.
    pub(crate) share_of: Option<Arc<DeviceId>>,
    /// The environment variables that a container gets with the device.
    pub(crate) env: Arc<BTreeMap<EnvName, String>>,
}

impl Resource {
    /// Creates a resource. The devices must have unique ids and be in the order of their indices,
    /// as discovery returns them.
    pub(crate) fn new(
        name: ResourceName,
        properties: Arc<ResourceProperties>,
        devices: Vec<AdvertisedDevice>,
    ) -> Self {
        let by_id = IdIndex::new(devices.len(), |position| devices[position].id.as_str());
        let hardware = number_hardware(&devices);
        Resource {
            name,
            properties,
            devices,
            by_id,
            hardware,
        }
    }

    /// Returns the devices in the order of their indices.
    pub(crate) fn devices(&self) -> &[AdvertisedDevice] {
        &self.devices
    }

    /// Makes all healthy devices unhealthy for this reason.
    pub(super) fn mark_unhealthy(&mut self, reason: &str) {
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

    /// Returns the hardware number of a device: a number below the number of devices that all
    /// shares of one device have in common.
    pub(crate) fn hardware_number(&self, position: usize) -> usize {
        self.hardware[position] as usize
    }

    /// Returns whether both resources have the same ListAndWatch message.
    pub(crate) fn has_same_list(&self, other: &Resource) -> bool {
        let listed = |device: &AdvertisedDevice| (device.is_healthy(), device.numa);
        self.devices.len() == other.devices.len()
            && self
                .devices
                .iter()
                .zip(&other.devices)
                .all(|(a, b)| a.id == b.id && listed(a) == listed(b))
    }

    /// Builds the message for a ListAndWatch stream.
    pub(crate) fn list(&self) -> ListAndWatchResponse {
        ListAndWatchResponse {
            devices: self.devices.iter().map(AdvertisedDevice::message).collect(),
        }
    }
}

/// Assigns hardware numbers to devices in the order in which their hardware first appears.
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

    /// Builds the device's message entry at its maximum length, which it has while the device is
    /// unhealthy.
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

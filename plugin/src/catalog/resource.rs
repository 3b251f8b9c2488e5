//! Represents an extended resource and its devices as the kubelet sees them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use daemon::kubelet_api::deviceplugin::{Device, ListAndWatchResponse, NumaNode, TopologyInfo};
use daemon::kubelet_api::{HEALTHY, UNHEALTHY};
use device_class::DeviceClass;
use device_class::class::{PlacementPolicy, ReplicaCount};
use device_class::discover::{Connections, Health};
use device_class::name::{ClassName, DeviceId, EnvName, ResourceName};

use super::id_index::IdIndex;

/// One extended resource of the node, such as `example.com/npu`, with all its devices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    pub(crate) name: ResourceName,
    pub(crate) properties: Arc<ResourceProperties>,
    devices: Vec<AdvertisedDevice>,
    id_index: IdIndex,
    /// For each entry of `devices`, the number of the physical device to which the entry belongs.
    /// All shares of one physical device have the same number.
    physical_device_numbers: Vec<u32>,
}

/// The properties that all devices of a resource have in common. A share is one of the parts into
/// which the plugin divides a shared device for the kubelet, and has its own id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResourceProperties {
    pub(crate) class: ClassName,
    /// The environment variable by which a container requests devices of the class.
    pub(crate) request_env: EnvName,
    /// The environment variable whose value is the number of shares that the container has.
    pub(crate) container_shares_env: Option<EnvName>,
    /// The environment variable whose value is the total number of shares of all containers in one
    /// Allocate call.
    pub(crate) call_shares_env: Option<EnvName>,
    /// The maximum number of shares that one container may have. `None` means that the number is
    /// not limited.
    pub(crate) max_shares_per_container: Option<u16>,
    /// Whether all shares of one container must belong to the same device.
    pub(crate) requires_one_device: bool,
    /// Whether the answer to Allocate names CDI devices. The engine then calls the hook, because
    /// the CDI specification contains it.
    pub(crate) uses_cdi: bool,
    /// Whether the resource only shows how many devices a class has. Such a resource cannot be
    /// allocated.
    pub(crate) is_count_only: bool,
    pub(crate) placement: PlacementPolicy,
}

impl ResourceProperties {
    pub(crate) fn from_class(class: &DeviceClass, uses_cdi: bool) -> Self {
        let sharing = class.spec.sharing.as_ref();
        ResourceProperties {
            class: class.name.clone(),
            request_env: class.spec.request.env.clone(),
            container_shares_env: sharing.and_then(|sharing| sharing.container_shares_env.clone()),
            call_shares_env: sharing.and_then(|sharing| sharing.call_shares_env.clone()),
            max_shares_per_container: class.settings.max_per_container.map(ReplicaCount::get),
            requires_one_device: sharing.is_some_and(|sharing| sharing.requires_one_device),
            uses_cdi,
            is_count_only: false,
            placement: class.spec.allocate.placement,
        }
    }

    /// Builds the properties of a resource that only shows how many devices a class has.
    pub(crate) fn new_count_only(class: &DeviceClass) -> Self {
        ResourceProperties {
            is_count_only: true,
            ..ResourceProperties::from_class(class, false)
        }
    }
}

/// A whole device, or one share of a shared device, as the kubelet sees it. All shares of a device
/// refer to the same data (`Arc`), because a node may have tens of thousands of shares.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdvertisedDevice {
    /// The id of the device or share in the kubelet's API and in requests.
    pub(crate) id: DeviceId,
    pub(crate) health: Health,
    pub(crate) numa_node: Option<u32>,
    /// The group of the device, as its class defines it. A container gets devices of one group
    /// where possible.
    pub(crate) group: Option<String>,
    pub(crate) connections: Arc<Connections>,
    /// The id of the shared device to which this share belongs. `None` means that this entry is a
    /// whole device.
    pub(crate) shared_device_id: Option<Arc<DeviceId>>,
    /// The environment variables that a container gets with the device.
    pub(crate) env: Arc<BTreeMap<EnvName, String>>,
}

impl Resource {
    /// Creates a resource from devices with unique ids, in the order of their indices. Discovery
    /// returns the devices in this way.
    pub(crate) fn new(
        name: ResourceName,
        properties: Arc<ResourceProperties>,
        devices: Vec<AdvertisedDevice>,
    ) -> Self {
        let id_index = IdIndex::new(devices.len(), |position| devices[position].id.as_str());
        let physical_device_numbers = assign_physical_device_numbers(&devices);
        Resource {
            name,
            properties,
            devices,
            id_index,
            physical_device_numbers,
        }
    }

    /// Returns the devices in the order of their indices.
    pub(crate) fn devices(&self) -> &[AdvertisedDevice] {
        &self.devices
    }

    pub(super) fn mark_unhealthy(&mut self, reason: &str) {
        for device in self.devices.iter_mut().filter(|device| device.is_healthy()) {
            let reason = reason.to_owned();
            device.health = Health::Unhealthy { reason };
        }
    }

    /// Returns the position in [`Resource::devices`] of the device or share with the id `id`.
    pub(crate) fn find_position(&self, id: &str) -> Option<usize> {
        let get_id = |position: usize| self.devices[position].id.as_str();
        self.id_index.find_position(id, get_id)
    }

    /// Returns the number of the physical device to which the entry at `position` belongs. All
    /// shares of one physical device have the same number, which is less than the number of entries
    /// in the resource.
    pub(crate) fn physical_device_number(&self, position: usize) -> usize {
        self.physical_device_numbers[position] as usize
    }

    /// Returns whether both resources result in the same ListAndWatch message to the kubelet.
    pub(crate) fn has_same_device_list(&self, other: &Resource) -> bool {
        let get_listed_state = |device: &AdvertisedDevice| (device.is_healthy(), device.numa_node);
        self.devices.len() == other.devices.len()
            && self
                .devices
                .iter()
                .zip(&other.devices)
                .all(|(a, b)| a.id == b.id && get_listed_state(a) == get_listed_state(b))
    }

    /// Builds the message that a ListAndWatch stream sends for this resource.
    pub(crate) fn to_list_message(&self) -> ListAndWatchResponse {
        ListAndWatchResponse {
            devices: self
                .devices
                .iter()
                .map(AdvertisedDevice::to_message)
                .collect(),
        }
    }
}

/// Returns, for each entry of `devices`, the number of its physical device. The first physical
/// device in the list has the number 0, the next one 1, and so on.
fn assign_physical_device_numbers(devices: &[AdvertisedDevice]) -> Vec<u32> {
    let mut numbers_by_hardware: HashMap<&DeviceId, u32> = HashMap::new();
    let mut free_numbers = 0..;
    let mut assign_number = |hardware| {
        *numbers_by_hardware
            .entry(hardware)
            .or_insert_with(|| free_numbers.next().unwrap_or(0))
    };
    let mut previous_share: Option<(&Arc<DeviceId>, u32)> = None;
    let mut numbers = Vec::with_capacity(devices.len());
    for device in devices {
        let same_hardware = previous_share
            .zip(device.shared_device_id.as_ref())
            .filter(|((previous, _), hardware)| Arc::ptr_eq(previous, hardware));
        let number = same_hardware.map_or_else(
            || assign_number(device.physical_device_id()),
            |((_, number), _)| number,
        );
        previous_share = device
            .shared_device_id
            .as_ref()
            .map(|hardware| (hardware, number));
        numbers.push(number);
    }
    numbers
}

impl AdvertisedDevice {
    pub(crate) fn physical_device_id(&self) -> &DeviceId {
        self.shared_device_id.as_deref().unwrap_or(&self.id)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        matches!(self.health, Health::Healthy)
    }

    /// Builds the entry of the device in a ListAndWatch message at its maximum length. The text for
    /// an unhealthy device is the longest.
    pub(super) fn to_largest_message(&self) -> Device {
        Device {
            health: UNHEALTHY.to_owned(),
            ..self.to_message()
        }
    }

    fn to_message(&self) -> Device {
        let to_topology = |id: u32| TopologyInfo {
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
            topology: self.numa_node.map(to_topology),
        }
    }
}

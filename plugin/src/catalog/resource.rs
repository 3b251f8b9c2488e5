//! A resource and its devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use device_class::DeviceClass;
use device_class::class::{Preference, ReplicaCount};
use device_class::discover::{Connections, Health};
use device_class::name::{ClassName, DeviceId, EnvName, ResourceName};
use kubelet_api::deviceplugin::{Device, ListAndWatchResponse, NumaNode, TopologyInfo};
use kubelet_api::{HEALTHY, UNHEALTHY};

/// One extended resource of the node, and all its devices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    pub(crate) name: ResourceName,
    pub(crate) terms: Arc<Terms>,
    devices: Vec<AdvertisedDevice>,
    /// Positions in `devices`, sorted by id.
    by_id: Vec<u32>,
}

/// Properties of all devices of a class.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    pub(crate) class: ClassName,
    /// The variable with which a container requests devices of the class.
    pub(crate) request_env: EnvName,
    /// The variable with the number of allocated shares.
    pub(crate) count_env: Option<EnvName>,
    /// The variable with the number of shares allocated in one call.
    pub(crate) call_count_env: Option<EnvName>,
    /// The maximum number of shares of one container; `None`: any number.
    pub(crate) max_per_container: Option<u16>,
    /// Whether the shares of one container are all of one device.
    pub(crate) one_device: bool,
    /// Whether the engine brings the hook, by the devices' names in CDI.
    pub(crate) by_cdi: bool,
    /// Whether the resource only shows how many devices there are.
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

    /// Those of the class's count of devices.
    pub(crate) fn of_count(class: &DeviceClass) -> Self {
        Terms {
            count_only: true,
            ..Terms::from_class(class, false)
        }
    }
}

/// One device as it is advertised. There may be tens of thousands, of which many are
/// shares of one: what these have in common exists once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdvertisedDevice {
    /// Its id, for the kubelet and in requests.
    pub(crate) id: DeviceId,
    pub(crate) health: Health,
    pub(crate) numa: Option<u32>,
    /// Devices with the same group belong together.
    pub(crate) group: Option<String>,
    pub(crate) connections: Arc<Connections>,
    /// The device that it is a share of; `None` if it is not a share.
    pub(crate) share_of: Option<Arc<DeviceId>>,
    /// The variables that a container gets with it.
    pub(crate) env: Arc<BTreeMap<EnvName, String>>,
}

impl Resource {
    /// A resource with its devices, in the order of their indices.
    /// Ids must be unique; those of discovery are.
    pub(crate) fn new(
        name: ResourceName,
        terms: Arc<Terms>,
        devices: Vec<AdvertisedDevice>,
    ) -> Self {
        let mut by_id: Vec<u32> = (0..).take(devices.len()).collect();
        by_id.sort_by(|a, b| devices[*a as usize].id.cmp(&devices[*b as usize].id));
        Resource {
            name,
            terms,
            devices,
            by_id,
        }
    }

    /// The devices, in the order of their indices.
    pub(crate) fn devices(&self) -> &[AdvertisedDevice] {
        &self.devices
    }

    /// Makes the devices that are healthy unhealthy.
    pub(super) fn refuse(&mut self, reason: &str) {
        for device in self.devices.iter_mut().filter(|device| device.is_healthy()) {
            let reason = reason.to_owned();
            device.health = Health::Unhealthy { reason };
        }
    }

    /// The place of a device in [`Resource::devices`].
    pub(crate) fn position(&self, id: &str) -> Option<usize> {
        let id_at = |at: &u32| self.devices[*at as usize].id.as_str();
        let found = self.by_id.binary_search_by(|at| id_at(at).cmp(id)).ok()?;
        Some(self.by_id[found] as usize)
    }

    /// Whether [`Resource::list`] gives the same for both.
    pub(crate) fn lists_the_same(&self, other: &Resource) -> bool {
        let listed = |device: &AdvertisedDevice| (device.is_healthy(), device.numa);
        self.devices.len() == other.devices.len()
            && self
                .devices
                .iter()
                .zip(&other.devices)
                .all(|(a, b)| a.id == b.id && listed(a) == listed(b))
    }

    /// The message for ListAndWatch.
    pub(crate) fn list(&self) -> ListAndWatchResponse {
        ListAndWatchResponse {
            devices: self.devices.iter().map(AdvertisedDevice::message).collect(),
        }
    }
}

impl AdvertisedDevice {
    pub(crate) fn hardware(&self) -> &DeviceId {
        self.share_of.as_deref().unwrap_or(&self.id)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        matches!(self.health, Health::Healthy)
    }

    /// Its part of the list at its maximum length: while it is unhealthy.
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

//! A container's request for devices that may arrive on the host after the container's start.

use device_class::name::{ClassName, DeviceId};
use injection_plan::plan::{DetachedRequest, GrantOrigin, InjectionPlan};
use injection_plan::request::{AwaitedDevice, DeviceListItem, Selection, quote};
use serde::{Deserialize, Serialize};

use crate::attachment::record::{ContainerDevice, device_text};
use crate::planner::ScannedClass;

/// A container's request for devices that may arrive after the container's start. It requests one
/// device by its name (`NAME?`), or all devices of a class. The request stays when its device
/// arrives, because the device may be unplugged again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedRequest {
    pub class: ClassName,
    #[serde(rename = "awaited")]
    pub awaited_device: AwaitedDevice,
    /// The id of the device that fulfils a request by name. It stays when the device is unplugged.
    /// `None` means that the host never had such a device, or that all devices of the class are
    /// requested.
    #[serde(
        default,
        rename = "device",
        deserialize_with = "device_text::optional_device_id::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub device_id: Option<DeviceId>,
    /// The ids of devices that a user has detached. They are not added to the container again for
    /// this request.
    #[serde(
        default,
        rename = "detached",
        deserialize_with = "device_text::device_ids::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub detached_ids: Vec<DeviceId>,
}

impl AwaitedRequest {
    /// Returns the requests of an injection plan for devices that the host does not have yet.
    pub fn list_unfulfilled_requests(plan: &InjectionPlan) -> Vec<Self> {
        let grants = plan.grants.iter();
        let requests = grants.flat_map(|grant| {
            grant
                .awaited_devices
                .iter()
                .map(|awaited_device| AwaitedRequest {
                    class: grant.class.clone(),
                    awaited_device: awaited_device.clone(),
                    device_id: None,
                    detached_ids: Vec::new(),
                })
        });
        requests.collect()
    }

    /// Returns the requests of a plan for a device by its name (`NAME?`), if the host already has
    /// the device. They are recorded, because the device may be unplugged and plugged in again.
    pub fn list_fulfilled_requests(plan: &InjectionPlan) -> Vec<Self> {
        let grants = plan.grants.iter();
        let requests = grants.flat_map(|grant| {
            let requests = grant.fulfilled_requests.iter();
            requests.map(|(awaited_device, id)| AwaitedRequest {
                class: grant.class.clone(),
                awaited_device: awaited_device.clone(),
                device_id: Some(id.clone()),
                detached_ids: Vec::new(),
            })
        });
        requests.collect()
    }

    /// Reports whether `device` fulfils this request, or fulfilled it before it was unplugged.
    pub fn has_device(&self, device: &ContainerDevice) -> bool {
        self.class == device.class && self.device_id.as_ref() == Some(&device.device_id)
    }

    /// Reports whether both values are the same request: they have the same class, and the same
    /// name or `all`. Their devices may differ.
    pub fn is_same_request(&self, other: &Self) -> bool {
        (&self.class, &self.awaited_device) == (&other.class, &other.awaited_device)
    }

    pub fn requests_all_devices(&self) -> bool {
        self.awaited_device == AwaitedDevice::All
    }

    /// Returns the devices that fulfil this request and that the host has now. Leaves out the
    /// devices that a user has detached.
    pub fn find_arrived_devices(&self, class: &ScannedClass) -> Vec<ContainerDevice> {
        let inventory = &class.found.inventory;
        let request = self.awaited_device.to_device_list();
        // An error means that the host does not have the device yet. So the list is empty.
        let Ok(selection) = Selection::from_list(&request, &class.class.spec) else {
            return Vec::new();
        };
        let Ok(devices) = selection.choose_devices(&class.class, inventory) else {
            return Vec::new();
        };
        let Ok(node_paths_by_device) = selection.find_node_paths(&class.class, inventory) else {
            return Vec::new();
        };
        let names = selection.find_stable_names(&class.class, inventory);
        let arrived_devices = devices.into_iter().map(|device| {
            let id = device.id.clone();
            ContainerDevice {
                class: self.class.clone(),
                grant_origin: GrantOrigin::Hook,
                is_forced: false,
                name: names.get(&id).cloned(),
                node_paths: node_paths_by_device
                    .get(&device.id)
                    .cloned()
                    .unwrap_or_default(),
                has_arrived_late: true,
                device_id: id,
            }
        });
        arrived_devices
            .filter(|device| !self.detached_ids.contains(&device.device_id))
            .collect()
    }

    /// Returns a request for a recorded device. It uses the name by which the device was requested,
    /// or its id if there is no such name.
    pub fn from_device(device: &ContainerDevice) -> Self {
        AwaitedRequest {
            class: device.class.clone(),
            awaited_device: AwaitedDevice::Device {
                name: device.requested_name(),
                path: None,
            },
            device_id: Some(device.device_id.clone()),
            detached_ids: Vec::new(),
        }
    }

    /// Returns this request for the case that its device was detached. The id of the device is
    /// added to `detached_ids`, so that the device is not added to the container again.
    pub fn into_cancelled(mut self) -> Self {
        self.detached_ids.extend(self.device_id.take());
        self
    }

    /// Converts this request to a form from which the planner leaves out the detached devices.
    /// `has_ended` is true if `boathook detach` has ended the whole request.
    pub fn to_detached_request(&self, has_ended: bool) -> DetachedRequest {
        DetachedRequest {
            class: self.class.clone(),
            awaited_device: self.awaited_device.clone(),
            devices: self.detached_ids.clone(),
            has_ended,
        }
    }

    /// Reports whether an item of a user's device list selects this request. The item `all` without
    /// quotes selects every request.
    pub fn matches_item(&self, item: &DeviceListItem) -> bool {
        match &self.awaited_device {
            AwaitedDevice::All => !item.is_quoted && item.text == "all",
            AwaitedDevice::Device { name, .. } => {
                let is_all = !item.is_quoted && item.text == "all";
                let name = name.to_name_text();
                is_all || name == quote(&item.text) || name == item.text
            }
        }
    }
}

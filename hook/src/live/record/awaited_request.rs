//! A request of a container for devices that the host does not have yet.

use device_class::name::{ClassName, DeviceId};
use injection_plan::plan::{DetachedRequest, GivenBy, InjectionPlan};
use injection_plan::request::{Awaited, Item, Selection, quote};
use serde::{Deserialize, Serialize};

use crate::live::record::{AttachedDevice, device_text};
use crate::planner::ScannedClass;

/// A request of a container for devices that come after its start: one device by its name, or all
/// devices of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AwaitedRequest {
    pub(crate) class: ClassName,
    pub(crate) awaited: Awaited,
    /// The ids of devices that came and were detached. The container does not get them again.
    #[serde(
        default,
        deserialize_with = "device_text::ids::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(crate) detached: Vec<DeviceId>,
}

impl AwaitedRequest {
    /// Returns the requests of a plan whose devices the host does not have yet.
    pub(in crate::live) fn from_plan(plan: &InjectionPlan) -> Vec<Self> {
        let grants = plan.grants.iter();
        let awaited = grants.flat_map(|grant| {
            grant.waiting.iter().map(|awaited| AwaitedRequest {
                class: grant.class.clone(),
                awaited: awaited.clone(),
                detached: Vec::new(),
            })
        });
        awaited.collect()
    }

    pub(crate) fn is_for_all(&self) -> bool {
        self.awaited == Awaited::All
    }

    /// Returns the awaited devices that the host has now.
    pub(in crate::live) fn find_arrived(&self, class: &ScannedClass) -> Vec<AttachedDevice> {
        let inventory = &class.found.inventory;
        let request = self.awaited.to_list();
        // A name that the host does not have yet, or does not have any more, is no error here.
        let Ok(selection) = Selection::from_list(&request, &class.class.spec) else {
            return Vec::new();
        };
        let Ok(devices) = selection.choose(&class.class, inventory) else {
            return Vec::new();
        };
        let Ok(places) = selection.places(&class.class, inventory) else {
            return Vec::new();
        };
        let names = selection.names_of_devices(&class.class, inventory);
        let arrived = devices.into_iter().map(|device| {
            let id = device.id.clone();
            AttachedDevice {
                class: self.class.clone(),
                given_by: GivenBy::Hook,
                forced: false,
                name: names.get(&id).cloned(),
                places: places.get(&device.id).cloned().unwrap_or_default(),
                late: true,
                device: id,
            }
        });
        arrived
            .filter(|device| !self.detached.contains(&device.device))
            .collect()
    }

    /// Returns the request that was awaited before this device came.
    pub(in crate::live) fn from_late(device: &AttachedDevice) -> Self {
        AwaitedRequest {
            class: device.class.clone(),
            awaited: Awaited::Device {
                name: device.requested_name(),
                path: None,
            },
            detached: vec![device.device.clone()],
        }
    }

    pub(in crate::live) fn to_detached_request(&self, has_ended: bool) -> DetachedRequest {
        DetachedRequest {
            class: self.class.clone(),
            awaited: self.awaited.clone(),
            devices: self.detached.clone(),
            has_ended,
        }
    }

    /// Whether an item of a user's device list names this request.
    pub(in crate::live) fn matches_item(&self, item: &Item) -> bool {
        match &self.awaited {
            Awaited::All => !item.is_quoted && item.text == "all",
            Awaited::Device { name, .. } => {
                let is_all = !item.is_quoted && item.text == "all";
                let name = name.name_text();
                is_all || name == quote(&item.text) || name == item.text
            }
        }
    }
}

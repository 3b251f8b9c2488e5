//! A device that a container waits for.

use device_class::name::{ClassName, DeviceId};
use injection_plan::plan::{GivenBy, InjectionPlan};
use injection_plan::request::{Awaited, Item, Selection, quote};
use serde::{Deserialize, Serialize};

use crate::live::record::{AttachedDevice, form};
use crate::planner::LookedUp;

/// A device that a container waits for: all devices of a class that come after its start, or one
/// device that the host does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AwaitedDevice {
    pub(crate) class: ClassName,
    pub(crate) awaited: Awaited,
    /// The ids of devices that came and were detached. They are not given again.
    #[serde(
        default,
        deserialize_with = "form::ids::deserialize",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(crate) detached: Vec<DeviceId>,
}

impl AwaitedDevice {
    /// Returns all that a plan waits for.
    pub(in crate::live) fn find_all(plan: &InjectionPlan) -> Vec<Self> {
        let grants = plan.grants.iter();
        let awaited = grants.flat_map(|grant| {
            grant.waiting.iter().map(|awaited| AwaitedDevice {
                class: grant.class.clone(),
                awaited: awaited.clone(),
                detached: Vec::new(),
            })
        });
        awaited.collect()
    }

    pub(in crate::live) fn is_for_all(&self) -> bool {
        self.awaited == Awaited::All
    }

    /// Returns the devices that are awaited and that the host has now.
    pub(in crate::live) fn find_arrived(&self, class: &LookedUp) -> Vec<AttachedDevice> {
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

    /// Whether an item of a user's request names what is awaited.
    pub(in crate::live) fn is_named(&self, item: &Item) -> bool {
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

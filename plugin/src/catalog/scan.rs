//! From classes and a host to resources: one look at everything.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use device_class::DeviceClass;
use device_class::HostView;
use device_class::discover::{self, Device};
use device_class::name::ResourceName;

use super::Inventory;
use super::resource::{AdvertisedDevice, Resource};

/// What one look at the host gave.
#[derive(Debug, Default)]
pub struct Scan {
    /// The resources and their devices.
    pub inventory: Inventory,
    /// What was left out, and why: a line each.
    pub warnings: Vec<String>,
}

/// Looks for the devices of every class. A resource belongs to the first class
/// that has a device of it: two classes can't share one, since a container
/// would not know which variable speaks for it.
pub fn scan(classes: &[DeviceClass], host: &dyn HostView) -> Scan {
    let mut found: BTreeMap<ResourceName, (&DeviceClass, Vec<AdvertisedDevice>)> = BTreeMap::new();
    let mut warnings = Vec::new();
    for class in classes {
        let inventory = discover::devices(class, host);
        warnings.extend(
            inventory
                .warnings
                .iter()
                .map(|line| format!("{}: {line}", class.name)),
        );
        for device in inventory.devices {
            match found.entry(device.resource.clone()) {
                Entry::Vacant(place) => {
                    place.insert((class, vec![advertised(device)]));
                }
                Entry::Occupied(place) if place.get().0.name != class.name => {
                    let (owner, resource) = (&place.get().0.name, place.key());
                    let (id, class) = (device.id, &class.name);
                    warnings.push(format!(
                        "{class}: {id}: {resource} is of class {owner} already"
                    ));
                }
                Entry::Occupied(mut place) => place.get_mut().1.push(advertised(device)),
            }
        }
    }
    let inventory = found.into_iter().map(|(name, (class, devices))| {
        let env = class.spec.request.env.clone();
        (
            name.clone(),
            Arc::new(Resource::new(name, class.name.clone(), env, devices)),
        )
    });
    Scan {
        inventory: inventory.collect(),
        warnings,
    }
}

fn advertised(device: Device) -> AdvertisedDevice {
    let Device {
        id,
        health,
        numa,
        group,
        env,
        ..
    } = device;
    AdvertisedDevice {
        id,
        health,
        numa,
        group,
        share_of: None,
        env,
    }
}

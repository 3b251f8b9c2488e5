//! Turns the devices of the classes into resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device_class::discover::Device;
use device_class::name::ResourceName;
use host_inventory::{ClassScan, HostScan};
use injection_plan::cdi::{DescribedDevices, Description, Omission};
use kubelet_api::MAX_MESSAGE;

use super::cdi_files::describe;
use super::found::ResourceDevices;
use super::resource::{Resource, Terms};
use super::{Claimed, Resources};

#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) inventory: Resources,
    /// The devices and classes that are left out, one line for each with the reason.
    pub(crate) warnings: Vec<String>,
    /// The classes of which devices are not described, because of a mistake or because they are
    /// held back. They may have specifications from before.
    pub(super) undescribed: BTreeSet<String>,
    /// The CDI specifications of the devices, if the scan was asked for them.
    pub(super) described: DescribedDevices,
}

/// Makes resources of the devices. With a `description`, also makes the CDI specifications of
/// the devices, and a device for which that fails is unhealthy.
pub(crate) fn scan(
    judged: HostScan<'_>,
    claimed: &Claimed,
    description: Option<Description<'_>>,
) -> Scan {
    let HostScan {
        classes,
        mut claims,
        mut warnings,
        class_errors,
        unnamed,
    } = judged;
    let errors = class_errors.into_iter().map(|error| error.class);
    let incomplete = errors.chain(unnamed);
    let mut undescribed: BTreeSet<String> = incomplete.map(|class| class.to_string()).collect();
    let mut count_conflicts = BTreeSet::new();
    let mut found: BTreeMap<ResourceName, ResourceDevices> = BTreeMap::new();
    let mut described = DescribedDevices::default();
    for ClassScan {
        class,
        mut inventory,
        control_nodes,
    } in classes
    {
        for device in &mut inventory.devices {
            claimed.withhold(&class.name, device);
        }
        let count_resource = class.spec.count_resource();
        if let Some(description) = description {
            let before = described.omissions.len();
            inventory = describe(description, class, inventory, control_nodes, &mut described);
            if described.omissions[before..].iter().any(Omission::is_error) {
                undescribed.insert(class.name.to_string());
            }
        }
        let terms = Arc::new(Terms::from_class(class, description.is_some()));
        for device in inventory.devices {
            if let Some(name) = &count_resource {
                match claims.claim_name(name.as_str(), &class.name) {
                    Ok(()) => found
                        .entry(name.clone())
                        .or_insert_with(|| ResourceDevices::new(Arc::new(Terms::of_count(class))))
                        // A device counts as one, whether or not it is shared.
                        .add(Device {
                            replicas: None,
                            ..device.clone()
                        }),
                    Err(claimed) => {
                        count_conflicts.insert(format!("{}: {claimed}", class.name));
                    }
                }
            }
            found
                .entry(device.resource.clone())
                .or_insert_with(|| ResourceDevices::new(Arc::clone(&terms)))
                .add(device);
        }
    }
    warnings.extend(count_conflicts);
    let full = found.iter().filter(|(_, found)| found.left_out > 0);
    warnings.extend(full.map(|(name, found)| {
        format!(
            "{name}: {} devices left out, the kubelet accepts no list of more than \
             {MAX_MESSAGE} bytes; use fewer replicas or shorter ids",
            found.left_out
        )
    }));
    let inventory = found.into_iter().map(|(name, found)| {
        let resource = Resource::new(name.clone(), found.terms, found.devices);
        (name, Arc::new(resource))
    });
    Scan {
        inventory: inventory.collect(),
        warnings,
        undescribed,
        described,
    }
}

#[cfg(test)]
mod tests;

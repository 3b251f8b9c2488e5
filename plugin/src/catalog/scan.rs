//! Converts a scan of the host into resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device_class::discover::Device;
use device_class::name::ResourceName;
use host_inventory::{ClassScan, HostScan};
use injection_plan::cdi::{DescribedDevices, Description, Omission};
use kubelet_api::MAX_MESSAGE;

use super::cdi_files::describe_devices;
use super::resource::{Resource, ResourceProperties};
use super::resource_devices::ResourceDevices;
use super::{ClaimedDevices, Resources};

/// The resources of one scan.
#[derive(Debug, Default)]
pub(crate) struct ResourceScan {
    pub(crate) inventory: Resources,
    /// One line for each omitted device or class, with the reason.
    pub(crate) warnings: Vec<String>,
    /// The classes with devices that have no CDI specification now, because of an error or because
    /// they are held back. Their specifications of earlier scans are kept.
    pub(super) undescribed: BTreeSet<String>,
    /// The CDI specifications of the devices, if they were asked for.
    pub(super) described: DescribedDevices,
}

/// Groups the devices of a host scan into resources. With `description`, also builds the CDI
/// specifications; a device for which that fails becomes unhealthy.
pub(crate) fn build_resources(
    host_scan: HostScan<'_>,
    claimed: &ClaimedDevices,
    description: Option<Description<'_>>,
) -> ResourceScan {
    let HostScan {
        classes,
        mut claims,
        mut warnings,
        class_errors,
        unnamed,
    } = host_scan;
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
        inventory
            .devices
            .retain(|device| match &device.only_in_parts {
                None => true,
                Some(reason) => {
                    let (class, id) = (&class.name, &device.id);
                    warnings.push(format!("class {class}: {id} is not offered: {reason}"));
                    false
                }
            });
        for device in &mut inventory.devices {
            claimed.withhold(&class.name, device);
        }
        let count_resource = class.spec.count_resource();
        if let Some(description) = description {
            let before = described.omissions.len();
            inventory =
                describe_devices(description, class, inventory, control_nodes, &mut described);
            if described.omissions[before..].iter().any(Omission::is_error) {
                undescribed.insert(class.name.to_string());
            }
        }
        let properties = Arc::new(ResourceProperties::from_class(class, description.is_some()));
        for device in inventory.devices {
            if let Some(name) = &count_resource {
                match claims.claim_name(name.as_str(), &class.name) {
                    Ok(()) => found
                        .entry(name.clone())
                        .or_insert_with(|| {
                            ResourceDevices::new(Arc::new(ResourceProperties::for_count(class)))
                        })
                        // A shared device counts as one device here.
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
                .or_insert_with(|| ResourceDevices::new(Arc::clone(&properties)))
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
        let resource = Resource::new(name.clone(), found.properties, found.devices);
        (name, Arc::new(resource))
    });
    ResourceScan {
        inventory: inventory.collect(),
        warnings,
        undescribed,
        described,
    }
}

#[cfg(test)]
mod tests;

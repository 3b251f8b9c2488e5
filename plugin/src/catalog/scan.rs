//! Converts a scan of the host into resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use daemon::host_inventory::{ClassScan, HostScan};
use daemon::kubelet_api::MAX_MESSAGE_BYTES;
use device_class::discover::Device;
use device_class::name::ResourceName;
use injection_plan::cdi::{CdiDevices, Omission, SpecificationForm};

use super::cdi_files::add_cdi_devices;
use super::resource::{Resource, ResourceProperties};
use super::resource_devices::ResourceDevices;
use super::{ClaimedDevices, Resources};

/// The result of one scan: the resources, and the devices and classes that cannot be offered or
/// have no CDI description.
#[derive(Debug, Default)]
pub(crate) struct ResourceScan {
    pub(crate) resources: Resources,
    /// One line for each omitted device or class, with the reason.
    pub(crate) warnings: Vec<String>,
    /// The classes with devices that have no CDI description, because of an error or because their
    /// ids are not known yet. The specification files that earlier scans wrote for these classes
    /// are kept.
    pub(super) classes_without_cdi: BTreeSet<String>,
    /// The CDI descriptions of the devices. The value is empty if `build_resources` was called
    /// without `specification_form`.
    pub(super) cdi_devices: CdiDevices,
}

/// Groups the devices of a host scan into resources. With a `specification_form`, also describes
/// the devices for CDI specifications. A device that cannot be described becomes unhealthy.
pub(crate) fn build_resources(
    host_scan: HostScan<'_>,
    claimed_devices: &ClaimedDevices,
    specification_form: Option<SpecificationForm<'_>>,
) -> ResourceScan {
    let HostScan {
        classes,
        mut name_owners,
        mut warnings,
        class_errors,
        unnamed_classes,
        classes_without_log: _,
    } = host_scan;
    let failed_classes = class_errors.into_iter().map(|error| error.class);
    let incomplete_classes = failed_classes.chain(unnamed_classes);
    let mut classes_without_cdi: BTreeSet<String> =
        incomplete_classes.map(|class| class.to_string()).collect();
    let mut count_conflicts = BTreeSet::new();
    let mut resources: BTreeMap<ResourceName, ResourceDevices> = BTreeMap::new();
    let mut cdi_devices = CdiDevices::default();
    for ClassScan {
        class,
        mut inventory,
        control_nodes,
    } in classes
    {
        inventory
            .devices
            .retain(|device| match &device.whole_device_fault {
                None => true,
                Some(reason) => {
                    let (class, id) = (&class.name, &device.id);
                    warnings.push(format!("class {class}: {id} is not offered: {reason}"));
                    false
                }
            });
        for device in &mut inventory.devices {
            claimed_devices.withhold_device(&class.name, device);
        }
        let count_resource = class.spec.count_resource();
        if let Some(specification_form) = specification_form {
            let omissions_before = cdi_devices.omissions.len();
            inventory = add_cdi_devices(
                specification_form,
                class,
                inventory,
                control_nodes,
                &mut cdi_devices,
            );
            if cdi_devices.omissions[omissions_before..]
                .iter()
                .any(Omission::is_error)
            {
                classes_without_cdi.insert(class.name.to_string());
            }
        }
        let properties = Arc::new(ResourceProperties::from_class(
            class,
            specification_form.is_some(),
        ));
        for device in inventory.devices {
            if let Some(name) = &count_resource {
                match name_owners.claim_name(name.as_str(), &class.name) {
                    Ok(()) => resources
                        .entry(name.clone())
                        .or_insert_with(|| {
                            ResourceDevices::new(Arc::new(ResourceProperties::new_count_only(
                                class,
                            )))
                        })
                        // This resource only shows the number of devices on the node, so a shared
                        // device counts once.
                        .add(Device {
                            replicas: None,
                            ..device.clone()
                        }),
                    Err(conflict) => {
                        count_conflicts.insert(format!("{}: {conflict}", class.name));
                    }
                }
            }
            resources
                .entry(device.resource.clone())
                .or_insert_with(|| ResourceDevices::new(Arc::clone(&properties)))
                .add(device);
        }
    }
    warnings.extend(count_conflicts);
    let truncated_resources = resources.iter().filter(|(_, list)| list.omitted_count > 0);
    warnings.extend(truncated_resources.map(|(name, list)| {
        format!(
            "{name}: {} devices left out, the kubelet accepts no list of more than \
             {MAX_MESSAGE_BYTES} bytes; use fewer replicas or shorter ids",
            list.omitted_count
        )
    }));
    let resources = resources.into_iter().map(|(name, list)| {
        let resource = Resource::new(name.clone(), list.properties, list.devices);
        (name, Arc::new(resource))
    });
    ResourceScan {
        resources: resources.collect(),
        warnings,
        classes_without_cdi,
        cdi_devices,
    }
}

#[cfg(test)]
mod tests;

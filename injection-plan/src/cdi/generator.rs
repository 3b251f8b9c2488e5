//! Generates the CDI specifications of all devices of a host.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet};

use device_class::class::{DeviceClass, NameConflict, NameOwners};
use device_class::discover::{self, FoundClass, FoundEdits, LookUpError};
use device_class::host::HostView;
use device_class::name::{CapabilityName, ClassName, DeviceId, ResourceName};
use device_class::strict_toml::FileError;

use super::directory::UnusableClasses;
use super::{
    DescribedDevices, Description, DescriptionError, Specification, SpecificationOwner,
    SpecifiedDevice,
};

/// Generates CDI specifications with these options.
#[derive(Debug, Clone, Copy)]
pub struct Generator<'a> {
    /// The classes whose devices are described. An empty list means all classes.
    pub only_classes: &'a [ClassName],
    pub description: Description<'a>,
}

/// The CDI specifications of a host's devices, and what is missing from them.
#[derive(Debug, Default)]
pub struct GeneratedSpecifications {
    /// The specifications, one for each CDI kind.
    pub specifications: Vec<Specification>,
    /// The classes, devices and files that are missing from the specifications.
    pub omissions: Vec<Omission>,
}

/// A class, a device, or a file of a device that is missing from the specifications, with the
/// reason.
#[derive(Debug, thiserror::Error)]
pub enum Omission {
    /// The class cannot be used now, so that its devices cannot be found.
    #[error("class left out")]
    Class(#[source] ClassError),
    /// The device is left out, because another class has devices of the same CDI kind.
    #[error("{device} is left out")]
    NameConflict {
        device: DeviceId,
        #[source]
        error: NameConflict,
    },
    #[error("{kind}=all is without {device}: {reason}")]
    Unhealthy {
        device: DeviceId,
        kind: ResourceName,
        reason: String,
    },
    #[error("{device} is left out")]
    Device {
        device: DeviceId,
        is_healthy: bool,
        #[source]
        error: DescriptionError,
    },
    #[error("{kind}=all is left out")]
    All {
        kind: ResourceName,
        #[source]
        error: DescriptionError,
    },
    #[error("the plain form of {kind} lacks: {}", lacking.join(", "))]
    Lacking { kind: String, lacking: Vec<String> },
    /// The host now lacks a device node that programs need, so that containers do not get the node.
    #[error("{class}: {message}; after that write the specification again")]
    MissingNode { class: ClassName, message: String },
    #[error("no class has a usable device on this host; see `boathook list`")]
    Everything,
}

impl Omission {
    /// Returns whether the cause is an error in the class files. Other omissions are caused by the
    /// state of the host.
    pub fn is_error(&self) -> bool {
        match self {
            Omission::Class(_) | Omission::NameConflict { .. } | Omission::All { .. } => true,
            // An unhealthy device may lack files, so its error does not show that the class file is
            // wrong.
            Omission::Device { is_healthy, .. } => *is_healthy,
            _ => false,
        }
    }
}

/// The reason why the devices of a class could not be found.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    LookUp(#[from] LookUpError),
}

impl GeneratedSpecifications {
    /// Returns the classes that could not be used, or that have a device that could not be described.
    pub fn find_unusable_classes(&self) -> UnusableClasses {
        let mut unusable = UnusableClasses::default();
        for omission in &self.omissions {
            match omission {
                Omission::Class(ClassError::File(error)) => {
                    unusable.names.extend(error.class_name());
                }
                Omission::Class(ClassError::LookUp(_)) => unusable.may_be_any = true,
                Omission::Device { is_healthy, .. } => unusable.may_be_any |= *is_healthy,
                _ => {}
            }
        }
        unusable
    }

    /// Groups the described devices into specifications for `owner`, one for each CDI kind.
    pub fn from_described(described_devices: DescribedDevices, owner: SpecificationOwner) -> Self {
        let mut devices_by_kind: BTreeMap<String, Vec<SpecifiedDevice>> = BTreeMap::new();
        for (resource, device) in described_devices.devices {
            devices_by_kind
                .entry(owner.kind(&resource))
                .or_default()
                .push(device);
        }
        let specifications = devices_by_kind
            .into_iter()
            .map(|(kind, devices)| Specification::new(kind, devices));
        GeneratedSpecifications {
            specifications: specifications.collect(),
            omissions: described_devices.omissions,
        }
    }
}

impl Generator<'_> {
    /// Generates the specifications of the selected classes. `classes` must have every class of the
    /// host: if two classes have the same resource, it belongs to the first of them, even if that
    /// class is not selected.
    pub fn generate(
        &self,
        classes: impl IntoIterator<Item = Result<DeviceClass, FileError>>,
        host: &dyn HostView,
    ) -> GeneratedSpecifications {
        let mut all_devices = DescribedDevices::default();
        let mut name_owners = NameOwners::default();
        for class in classes {
            let described = class
                .map_err(ClassError::from)
                .and_then(|class| self.describe_class(&class, host, &mut name_owners));
            match described {
                Ok(described) => {
                    all_devices.devices.extend(described.devices);
                    all_devices.omissions.extend(described.omissions);
                }
                Err(error) => all_devices.omissions.push(Omission::Class(error)),
            }
        }
        if all_devices.devices.is_empty() {
            all_devices.omissions.push(Omission::Everything);
        }
        GeneratedSpecifications::from_described(all_devices, SpecificationOwner::People)
    }

    fn is_selected(&self, class: &ClassName) -> bool {
        self.only_classes.is_empty() || self.only_classes.contains(class)
    }

    fn describe_class(
        &self,
        class: &DeviceClass,
        host: &dyn HostView,
        name_owners: &mut NameOwners,
    ) -> Result<DescribedDevices, ClassError> {
        let is_selected = self.is_selected(&class.name);
        let mut found_class = if is_selected {
            self.look_up_class(class, host)?
        } else {
            // The class is not selected. Its devices are searched for nevertheless, because no other
            // class may have devices of the same resources.
            FoundClass {
                inventory: discover::find_devices(class, host),
                edits: FoundEdits::default(),
            }
        };
        let mut omissions = Vec::new();
        found_class.inventory.devices.retain(|device| {
            // An engine cannot distinguish devices of two classes that have the same CDI kind.
            let claim = name_owners.claim_name(device.resource.as_str(), &class.name);
            if let Err(error) = claim {
                let device = device.id.clone();
                omissions.push(Omission::NameConflict { device, error });
                return false;
            }
            true
        });
        if !is_selected {
            return Ok(DescribedDevices::default());
        }
        let mut described = self.description.describe_devices(class, &found_class);
        if !described.devices.is_empty() {
            let capabilities = class.spec.request.capabilities_by_default();
            let attributes = &found_class.inventory.host_attributes;
            let missing_nodes =
                discover::describe_missing_nodes(class, &capabilities, attributes, host);
            omissions.extend(
                missing_nodes
                    .into_iter()
                    .map(|message| Omission::MissingNode {
                        class: class.name.clone(),
                        message,
                    }),
            );
        }
        omissions.append(&mut described.omissions);
        Ok(DescribedDevices {
            omissions,
            ..described
        })
    }

    /// Finds the devices and files of a class that the specifications describe: in the thin form only
    /// device nodes, in the plain form files as well.
    fn look_up_class(
        &self,
        class: &DeviceClass,
        host: &dyn HostView,
    ) -> Result<FoundClass, ClassError> {
        let default_capabilities = &class.spec.request.default_capabilities;
        let capabilities: BTreeSet<CapabilityName> = inserted(default_capabilities.iter().cloned());
        Ok(match self.description.hook {
            None => discover::look_up_class(class, (&capabilities).into(), host)?,
            Some(_) => discover::look_up_nodes(class, &[], host)?,
        })
    }
}

#[cfg(test)]
mod tests;

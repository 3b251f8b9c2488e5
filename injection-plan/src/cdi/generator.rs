//! Generates the CDI specifications of all devices of a host.

use device_class::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};

use device_class::class::{DeviceClass, NameConflict, NameOwners};
use device_class::discover::{self, FoundClass, FoundEdits, LookUpError};
use device_class::host::HostView;
use device_class::name::{CapabilityName, ClassName, DeviceId, ResourceName};
use device_class::strict_toml::FileError;

use super::directory::UnusableClasses;
use super::{
    CdiDeviceError, CdiDevices, Specification, SpecificationForm, SpecificationOwner,
    SpecifiedDevice,
};

/// The options with which the CDI specifications of a host are generated.
#[derive(Debug, Clone, Copy)]
pub struct Generator<'a> {
    /// The classes whose devices are described. An empty list means all classes.
    pub selected_classes: &'a [ClassName],
    pub form: SpecificationForm<'a>,
}

/// The CDI specifications of a host's devices, and a list of what is missing from them.
#[derive(Debug, Default)]
pub struct GeneratedSpecifications {
    /// The specifications, one for each CDI kind.
    pub specifications: Vec<Specification>,
    /// The classes, devices and files that are missing from the specifications, each with the
    /// reason.
    pub omissions: Vec<Omission>,
}

/// A class, a device, or a file of a device that is missing from the specifications, with the
/// reason.
#[derive(Debug, thiserror::Error)]
pub enum Omission {
    /// The class cannot be used now, so its devices cannot be found.
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
        error: CdiDeviceError,
    },
    #[error("{kind}=all is left out")]
    All {
        kind: ResourceName,
        #[source]
        error: CdiDeviceError,
    },
    #[error("the plain form of {kind} lacks: {}", part_names.join(", "))]
    MissingParts {
        kind: String,
        part_names: Vec<String>,
    },
    /// The host does not have a device node that programs need. Containers do not get this node.
    #[error("{class}: {message}; after that write the specification again")]
    MissingNode { class: ClassName, message: String },
    #[error("no class has a usable device on this host; see `boathook list`")]
    NoUsableDevice,
}

impl Omission {
    /// Returns whether an error in the class files caused the omission. Other omissions are caused
    /// by the state of the host.
    pub fn is_error(&self) -> bool {
        match self {
            Omission::Class(_) | Omission::NameConflict { .. } | Omission::All { .. } => true,
            // The files of an unhealthy device may be missing. So an error of such a device does
            // not prove that the class file is wrong.
            Omission::Device { is_healthy, .. } => *is_healthy,
            _ => false,
        }
    }
}

/// The reason why the devices of a class cannot be found: its file has an error, or the look-up on
/// the host failed.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    LookUp(#[from] LookUpError),
}

impl GeneratedSpecifications {
    /// Finds the classes that cannot be used, or that have a healthy device whose CDI edits could
    /// not be made. The old specification files of these classes are not removed. If the name of
    /// such a class is not known, sets `may_include_others`.
    pub fn find_unusable_classes(&self) -> UnusableClasses {
        let mut unusable_classes = UnusableClasses::default();
        for omission in &self.omissions {
            match omission {
                Omission::Class(ClassError::File(error)) => {
                    unusable_classes.names.extend(error.class_name());
                }
                Omission::Class(ClassError::LookUp(_)) => {
                    unusable_classes.may_include_others = true
                }
                Omission::Device { is_healthy, .. } => {
                    unusable_classes.may_include_others |= *is_healthy
                }
                _ => {}
            }
        }
        unusable_classes
    }

    /// Groups CDI devices into specifications for `owner`. Each CDI kind has one specification.
    pub fn from_cdi_devices(cdi_devices: CdiDevices, owner: SpecificationOwner) -> Self {
        let mut devices_by_kind: BTreeMap<String, Vec<SpecifiedDevice>> = BTreeMap::new();
        for (resource, device) in cdi_devices.devices {
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
            omissions: cdi_devices.omissions,
        }
    }
}

impl Generator<'_> {
    /// Generates the specifications of the selected classes. `classes` must contain every class of
    /// the host: if two classes have the same resource, it belongs to the first of them, even if
    /// that class is not selected.
    pub fn generate(
        &self,
        classes: impl IntoIterator<Item = Result<DeviceClass, FileError>>,
        host: &dyn HostView,
    ) -> GeneratedSpecifications {
        let mut cdi_devices = CdiDevices::default();
        let mut name_owners = NameOwners::default();
        for class in classes {
            let class_devices = class
                .map_err(ClassError::from)
                .and_then(|class| self.build_class_devices(&class, host, &mut name_owners));
            match class_devices {
                Ok(class_devices) => {
                    cdi_devices.devices.extend(class_devices.devices);
                    cdi_devices.omissions.extend(class_devices.omissions);
                }
                Err(error) => cdi_devices.omissions.push(Omission::Class(error)),
            }
        }
        if cdi_devices.devices.is_empty() {
            cdi_devices.omissions.push(Omission::NoUsableDevice);
        }
        GeneratedSpecifications::from_cdi_devices(cdi_devices, SpecificationOwner::User)
    }

    fn is_selected(&self, class: &ClassName) -> bool {
        self.selected_classes.is_empty() || self.selected_classes.contains(class)
    }

    fn build_class_devices(
        &self,
        class: &DeviceClass,
        host: &dyn HostView,
        name_owners: &mut NameOwners,
    ) -> Result<CdiDevices, ClassError> {
        let is_selected = self.is_selected(&class.name);
        let mut found_class = if is_selected {
            self.look_up_class(class, host)?
        } else {
            // The devices of an unselected class are found as well, because the check below must
            // know all resources: two classes must not have devices of the same resource.
            FoundClass {
                inventory: discover::find_devices(class, host),
                edits: FoundEdits::default(),
            }
        };
        let mut omissions = Vec::new();
        found_class.inventory.devices.retain(|device| {
            // An engine cannot distinguish devices of two classes that have the same CDI kind.
            let result = name_owners.claim_name(device.resource.as_str(), &class.name);
            if let Err(error) = result {
                let device = device.id.clone();
                omissions.push(Omission::NameConflict { device, error });
                return false;
            }
            true
        });
        if !is_selected {
            return Ok(CdiDevices::default());
        }
        let mut class_devices = self.form.build_cdi_devices(class, &found_class);
        if !class_devices.devices.is_empty() {
            let capabilities = class.spec.request.find_default_capabilities();
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
        omissions.append(&mut class_devices.omissions);
        Ok(CdiDevices {
            omissions,
            ..class_devices
        })
    }

    /// Finds the devices of a class, and the files that the specification will list. A thin
    /// specification lists only device nodes. A plain one lists the mounted files as well.
    fn look_up_class(
        &self,
        class: &DeviceClass,
        host: &dyn HostView,
    ) -> Result<FoundClass, ClassError> {
        let default_capabilities = &class.spec.request.default_capabilities;
        let capabilities: BTreeSet<CapabilityName> =
            collect_by_insertion(default_capabilities.iter().cloned());
        Ok(match self.form.hook {
            None => discover::look_up_class(class, (&capabilities).into(), host)?,
            Some(_) => discover::look_up_nodes(class, &[], host)?,
        })
    }
}

#[cfg(test)]
mod tests;

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

/// The options with which specifications are generated.
#[derive(Debug, Clone, Copy)]
pub struct Generator<'a> {
    /// The classes whose devices are described. An empty list means all classes.
    pub only: &'a [ClassName],
    pub description: Description<'a>,
}

/// The specifications of a host's devices, and what could not be described in them.
#[derive(Debug, Default)]
pub struct GeneratedSpecifications {
    /// The specifications, one for each kind.
    pub specifications: Vec<Specification>,
    /// The classes, devices and parts that no specification has, each with the reason.
    pub omissions: Vec<Omission>,
}

/// A class, a device or a part of a device that the specifications lack, with the reason.
#[derive(Debug, thiserror::Error)]
pub enum Omission {
    /// The class cannot be used now, so its devices are not known.
    #[error("class left out")]
    Class(#[source] ClassError),
    /// The device is left out because another class has devices of the same kind.
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
    /// A node that programs need is not on the host now, so the container does not get it.
    #[error("{class}: {text}; after that write the specification again")]
    MissingNode { class: ClassName, text: String },
    #[error("no class has a usable device on this host; see `boathook list`")]
    Everything,
}

impl Omission {
    /// Returns whether the cause is a fault of the class files, and not the state of the
    /// host.
    pub fn is_error(&self) -> bool {
        match self {
            Omission::Class(_) | Omission::NameConflict { .. } | Omission::All { .. } => true,
            // An unhealthy device may lack files, so its error does not show a fault of the class
            // file.
            Omission::Device { is_healthy, .. } => *is_healthy,
            _ => false,
        }
    }
}

/// The reason why the devices of a class are not known.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    LookUp(#[from] LookUpError),
}

impl GeneratedSpecifications {
    /// Returns the classes that could not be used, or of which a device could not be described.
    pub fn find_unusable_classes(&self) -> UnusableClasses {
        let mut unusable = UnusableClasses::default();
        for omission in &self.omissions {
            match omission {
                Omission::Class(ClassError::File(error)) => {
                    unusable.names.extend(error.class_name());
                }
                Omission::Class(ClassError::LookUp(_)) => unusable.all = true,
                Omission::Device { is_healthy, .. } => unusable.all |= *is_healthy,
                _ => {}
            }
        }
        unusable
    }

    /// Groups the described devices into specifications for `user`, one for each kind.
    pub fn from_described(described: DescribedDevices, user: SpecificationOwner) -> Self {
        let mut kinds: BTreeMap<String, Vec<SpecifiedDevice>> = BTreeMap::new();
        for (resource, device) in described.devices {
            kinds.entry(user.kind(&resource)).or_default().push(device);
        }
        let specifications = kinds
            .into_iter()
            .map(|(kind, devices)| Specification::new(kind, devices));
        GeneratedSpecifications {
            specifications: specifications.collect(),
            omissions: described.omissions,
        }
    }
}

impl Generator<'_> {
    /// Generates the specifications of the wanted classes. `classes` must have every class
    /// of the host: if two classes have the same resource, it belongs to the first one, even
    /// if that class is not wanted.
    pub fn generate(
        &self,
        classes: impl IntoIterator<Item = Result<DeviceClass, FileError>>,
        host: &dyn HostView,
    ) -> GeneratedSpecifications {
        let mut all = DescribedDevices::default();
        let mut claims = NameOwners::default();
        for class in classes {
            let described = class
                .map_err(ClassError::from)
                .and_then(|class| self.describe(&class, host, &mut claims));
            match described {
                Ok(described) => {
                    all.devices.extend(described.devices);
                    all.omissions.extend(described.omissions);
                }
                Err(error) => all.omissions.push(Omission::Class(error)),
            }
        }
        if all.devices.is_empty() {
            all.omissions.push(Omission::Everything);
        }
        GeneratedSpecifications::from_described(all, SpecificationOwner::People)
    }

    fn is_wanted(&self, class: &ClassName) -> bool {
        self.only.is_empty() || self.only.contains(class)
    }

    fn describe(
        &self,
        class: &DeviceClass,
        host: &dyn HostView,
        claims: &mut NameOwners,
    ) -> Result<DescribedDevices, ClassError> {
        let is_wanted = self.is_wanted(&class.name);
        let mut found = if is_wanted {
            self.look_up(class, host)?
        } else {
            // The class is not described, but its devices are found, because no other class may have
            // devices of the same resources.
            FoundClass {
                inventory: discover::devices(class, host),
                edits: FoundEdits::default(),
            }
        };
        let mut omissions = Vec::new();
        found.inventory.devices.retain(|device| {
            // An engine cannot distinguish devices of two classes that have the same kind.
            let claimed = claims.claim_name(device.resource.as_str(), &class.name);
            if let Err(error) = claimed {
                let device = device.id.clone();
                omissions.push(Omission::NameConflict { device, error });
                return false;
            }
            true
        });
        if !is_wanted {
            return Ok(DescribedDevices::default());
        }
        let mut described = self.description.describe_devices(class, &found);
        if !described.devices.is_empty() {
            let capabilities = class.spec.request.capabilities_by_default();
            let attributes = &found.inventory.host_attributes;
            let missing = discover::find_missing_nodes(class, &capabilities, attributes, host);
            omissions.extend(missing.into_iter().map(|text| Omission::MissingNode {
                class: class.name.clone(),
                text,
            }));
        }
        omissions.append(&mut described.omissions);
        Ok(DescribedDevices {
            omissions,
            ..described
        })
    }

    /// Looks up the parts of the host that the form of the specifications needs. The thin
    /// form has only nodes; the plain form has files as well.
    fn look_up(&self, class: &DeviceClass, host: &dyn HostView) -> Result<FoundClass, ClassError> {
        let defaults = &class.spec.request.default_capabilities;
        let capabilities: BTreeSet<CapabilityName> = inserted(defaults.iter().cloned());
        Ok(match self.description.hook {
            None => discover::look_up(class, (&capabilities).into(), host)?,
            Some(_) => discover::look_up_nodes(class, &[], host)?,
        })
    }
}

#[cfg(test)]
mod tests;

//! From the classes and a host to the specifications of all devices.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet};

use device_class::class::{Claimed, Claims, DeviceClass};
use device_class::discover::{self, FoundClass, FoundEdits, LookUpError};
use device_class::host::HostView;
use device_class::name::{CapabilityName, ClassName, DeviceId, ResourceName};
use device_class::strict_toml::FileError;

use super::{Described, Description, DescriptionError, Specification, SpecifiedDevice};

#[derive(Debug, Clone, Copy)]
pub struct Generator<'a> {
    /// The classes whose devices are wanted; none represents all.
    pub only: &'a [ClassName],
    pub description: Description<'a>,
}

/// What a host's specifications should be.
#[derive(Debug, Default)]
pub struct Generated {
    /// One for each kind.
    pub specifications: Vec<Specification>,
    /// What is missing there, and why.
    pub omissions: Vec<Omission>,
}

/// Something that no specification has.
#[derive(Debug, thiserror::Error)]
pub enum Omission {
    /// A class cannot be used now, so that its devices are not known.
    #[error("class left out")]
    Class(#[source] ClassError),
    /// Another class has devices of the same kind.
    #[error("{device} is left out")]
    Claimed {
        device: DeviceId,
        #[source]
        error: Claimed,
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
    #[error("no class has a usable device on this host; see `boathook list`")]
    Everything,
}

impl Omission {
    /// Whether it is a fault of the class files, and not a state of the host.
    pub fn is_error(&self) -> bool {
        match self {
            Omission::Class(_) | Omission::Claimed { .. } | Omission::All { .. } => true,
            // What it lacks is the reason why it is unhealthy.
            Omission::Device { is_healthy, .. } => *is_healthy,
            _ => false,
        }
    }
}

/// Why the devices of a class are not known.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    LookUp(#[from] LookUpError),
}

impl Generated {
    /// Groups the described devices into specifications, one for each kind.
    pub fn from_described(described: Described) -> Self {
        let mut kinds: BTreeMap<String, Vec<SpecifiedDevice>> = BTreeMap::new();
        for (kind, device) in described.devices {
            kinds.entry(kind.into()).or_default().push(device);
        }
        let specifications = kinds
            .into_iter()
            .map(|(kind, devices)| Specification::new(kind, devices));
        Generated {
            specifications: specifications.collect(),
            omissions: described.omissions,
        }
    }
}

impl Generator<'_> {
    /// The specifications of the devices of the wanted classes. Every class of the host
    /// must be given: of two with one resource the first one has it, wanted or not.
    pub fn generate(
        &self,
        classes: impl IntoIterator<Item = Result<DeviceClass, FileError>>,
        host: &dyn HostView,
    ) -> Generated {
        let mut all = Described::default();
        let mut claims = Claims::default();
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
        Generated::from_described(all)
    }

    fn is_wanted(&self, class: &ClassName) -> bool {
        self.only.is_empty() || self.only.contains(class)
    }

    fn describe(
        &self,
        class: &DeviceClass,
        host: &dyn HostView,
        claims: &mut Claims,
    ) -> Result<Described, ClassError> {
        let is_wanted = self.is_wanted(&class.name);
        let mut found = match is_wanted {
            true => self.found(class, host)?,
            // Its devices keep other classes from their resources.
            false => FoundClass {
                inventory: discover::devices(class, host),
                edits: FoundEdits::default(),
            },
        };
        let mut omissions = Vec::new();
        found.inventory.devices.retain(|device| {
            // An engine would not distinguish the devices of the two classes.
            let claimed = claims.claim(device.resource.as_str(), &class.name);
            if let Err(error) = claimed {
                let device = device.id.clone();
                omissions.push(Omission::Claimed { device, error });
                return false;
            }
            true
        });
        if !is_wanted {
            return Ok(Described::default());
        }
        let mut described = self.description.devices(class, &found);
        omissions.append(&mut described.omissions);
        Ok(Described {
            omissions,
            ..described
        })
    }

    /// What the form has: only the plain one has files.
    fn found(&self, class: &DeviceClass, host: &dyn HostView) -> Result<FoundClass, ClassError> {
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

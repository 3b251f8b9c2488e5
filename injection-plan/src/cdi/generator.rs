//! From the classes and a host to the specifications of all devices.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use device_class::class::{Claimed, Claims, DeviceClass};
use device_class::config::Config;
use device_class::discover::{self, Device, Found, LookUpError};
use device_class::host::HostView;
use device_class::name::{CdiName, CdiNameError, ClassName, DeviceId};
use device_class::strict_toml::FileError;

use super::{ContainerEdits, GrantingHook, Specification, SpecifiedDevice};
use crate::plan::{self, Asked, Authority, InjectionPlan, PlanError, SpecDevices};
use crate::request::{Environment, RefusedRequest, Request, RequestSource};

/// The name of a kind's device that represents all.
const ALL: &str = "all";

/// What a specification has.
#[derive(Debug, Clone, Copy)]
pub enum Form<'a> {
    /// The nodes, and the hook, which does the rest when a container starts.
    Thin {
        /// The hook, as a path on the host.
        program: &'a Path,
        /// Seconds until the engine ends the hook.
        timeout: u32,
    },
    /// Nodes, mounts and variables.
    Plain,
}

/// Makes the specifications of a host's devices.
#[derive(Debug, Clone, Copy)]
pub struct Generator<'a> {
    /// What configures the classes.
    pub config: &'a Config,
    /// The classes whose devices are wanted; none represents all.
    pub only: &'a [ClassName],
    /// What the specifications have.
    pub form: Form<'a>,
    /// The host's root as engines see it.
    pub host_root: &'a Path,
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
        /// Which classes these are.
        #[source]
        error: Claimed,
    },
    #[error("{device} is left out: {reason}")]
    Unhealthy {
        device: DeviceId,
        /// Its health.
        reason: String,
    },
    /// CDI does not allow the name.
    #[error("{name} of class {class} is left out")]
    Name {
        name: String,
        class: ClassName,
        #[source]
        error: CdiNameError,
    },
    /// The plain form lacks what only a hook can do.
    #[error("the plain form of {kind} lacks: {}", lacking.join(", "))]
    Lacking { kind: String, lacking: Vec<String> },
    /// There is no device at all.
    #[error("no class has a usable device on this host; see `boathook list`")]
    Everything,
}

impl Omission {
    /// Whether it is a fault of the class files, and not a state of the host.
    pub fn is_error(&self) -> bool {
        matches!(self, Omission::Class(_) | Omission::Claimed { .. })
    }

    /// What stays the same from scan to scan where the text has a measured value in it.
    pub fn key(&self) -> Option<String> {
        match self {
            Omission::Unhealthy { device, .. } => Some(format!("{device} is unhealthy")),
            _ => None,
        }
    }
}

/// Why the devices of a class are not known.
#[derive(Debug, thiserror::Error)]
pub enum ClassError {
    /// The class file is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// The class's files cannot be looked up.
    #[error(transparent)]
    LookUp(#[from] LookUpError),
    /// A device cannot be requested.
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    /// A device cannot be given to a container.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Generator<'_> {
    /// The specifications of the devices of the wanted classes. Every class of the host
    /// must be given: of two with one resource the first one has it, wanted or not.
    pub fn generate(
        &self,
        classes: impl IntoIterator<Item = Result<DeviceClass, FileError>>,
        host: &dyn HostView,
    ) -> Generated {
        let mut omissions = Vec::new();
        let mut claims = Claims::default();
        let mut kinds: BTreeMap<String, Vec<SpecifiedDevice>> = BTreeMap::new();
        for class in classes {
            if let Ok(class) = &class
                && !self.is_wanted(&class.name)
            {
                claim_all(class, host, &mut claims);
                continue;
            }
            let devices = class
                .map_err(ClassError::from)
                .and_then(|class| self.devices_of(&class, host, &mut claims, &mut omissions));
            match devices {
                Ok(devices) => {
                    for (kind, device) in devices {
                        kinds.entry(kind).or_default().push(device);
                    }
                }
                Err(error) => omissions.push(Omission::Class(error)),
            }
        }
        if kinds.is_empty() {
            omissions.push(Omission::Everything);
        }
        let specifications = kinds
            .into_iter()
            .map(|(kind, devices)| Specification::new(kind, devices));
        Generated {
            specifications: specifications.collect(),
            omissions,
        }
    }

    fn is_wanted(&self, class: &ClassName) -> bool {
        self.only.is_empty() || self.only.contains(class)
    }

    /// The devices of one class, each with its kind: under its id, under its index,
    /// and all of a kind together.
    fn devices_of(
        &self,
        class: &DeviceClass,
        host: &dyn HostView,
        claims: &mut Claims,
        omissions: &mut Vec<Omission>,
    ) -> Result<Vec<(String, SpecifiedDevice)>, ClassError> {
        let defaults = &class.spec.request.default_capabilities;
        let capabilities: BTreeSet<_> = defaults.iter().cloned().collect();
        let found = discover::look_up(class, self.config, (&capabilities).into(), host)?;
        let mut specified: Vec<(String, SpecifiedDevice)> = Vec::new();
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for device in &found.inventory.devices {
            if let Some(omission) = omitted(device, class, claims) {
                omissions.push(omission);
                continue;
            }
            let kind = device.resource.as_str();
            kinds.entry(kind).or_default().push(device.id.as_str());
            let names = [Some(device.id.as_str()), device.index.as_deref()];
            let mut names: Vec<&str> = names.into_iter().flatten().collect();
            names.dedup();
            for name in names {
                // An index may be another device's id.
                let is_it =
                    |(of, known): &(String, SpecifiedDevice)| *of == kind && known.name == name;
                if specified.iter().any(is_it) {
                    continue;
                }
                let devices = device.id.as_str();
                specified.extend(self.device(class, &found, kind, name, devices, omissions)?);
            }
        }
        for (kind, ids) in kinds {
            let devices = ids.join(",");
            specified.extend(self.device(class, &found, kind, ALL, &devices, omissions)?);
        }
        Ok(specified)
    }

    /// A device of a specification, if it can have this name there.
    fn device(
        &self,
        class: &DeviceClass,
        found: &Found,
        kind: &str,
        name: &str,
        devices: &str,
        omissions: &mut Vec<Omission>,
    ) -> Result<Option<(String, SpecifiedDevice)>, ClassError> {
        if let Err(error) = CdiName::try_from(format!("{kind}={name}")) {
            omissions.push(Omission::Name {
                name: name.to_owned(),
                class: class.name.clone(),
                error,
            });
            return Ok(None);
        }
        let Some(plan) = plan_of(class, found, devices)? else {
            return Ok(None);
        };
        let container_edits = match self.form {
            Form::Thin { program, timeout } => {
                // `all` stays right when devices come and go.
                let granted = if name == ALL { ALL } else { devices };
                let hook = GrantingHook {
                    program,
                    grant: &format!("{}={granted}", class.name),
                    timeout,
                };
                ContainerEdits::thin(&plan, self.host_root, hook)
            }
            Form::Plain => {
                let (edits, lacking): (_, BTreeSet<String>) =
                    ContainerEdits::plain(&plan, self.host_root);
                if name == ALL && !lacking.is_empty() {
                    omissions.push(Omission::Lacking {
                        kind: kind.to_owned(),
                        lacking: lacking.into_iter().collect(),
                    });
                }
                edits
            }
        };
        let device = SpecifiedDevice {
            name: name.to_owned(),
            container_edits,
        };
        let is_empty = device.container_edits.is_empty();
        Ok((!is_empty).then(|| (kind.to_owned(), device)))
    }
}

/// Claims the resources of a class whose devices are not written.
fn claim_all(class: &DeviceClass, host: &dyn HostView, claims: &mut Claims) {
    for device in discover::devices(class, host).devices {
        // Of two such classes either one keeps others from the resource.
        let _ = omitted(&device, class, claims);
    }
}

/// Why no specification has a device, if none has.
fn omitted(device: &Device, class: &DeviceClass, claims: &mut Claims) -> Option<Omission> {
    let id = || device.id.clone();
    // An engine would not distinguish the devices of the two classes.
    if let Err(error) = claims.claim(device.resource.as_str(), &class.name) {
        return Some(Omission::Claimed {
            device: id(),
            error,
        });
    }
    (!device.health.is_healthy()).then(|| Omission::Unhealthy {
        device: id(),
        reason: device.health.to_string(),
    })
}

fn plan_of(
    class: &DeviceClass,
    found: &Found,
    devices: &str,
) -> Result<Option<InjectionPlan>, ClassError> {
    let source = RequestSource::Cdi {
        devices: devices.to_owned(),
    };
    let Some(request) = Request::parse(class, &Environment::default(), source)? else {
        return Ok(None);
    };
    let asked = Asked {
        class,
        request: &request,
        found,
        authority: &Authority::Asker {
            why: "a specification is made for it".into(),
        },
    };
    Ok(Some(plan::plan(&[asked], &SpecDevices::default())?))
}

#[cfg(test)]
mod tests;

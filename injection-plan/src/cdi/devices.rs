//! The devices of one class in specifications, from those that were found and judged.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use device_class::class::DeviceClass;
use device_class::discover::{Device, FoundClass, Inventory};
use device_class::name::{CdiName, CdiNameError, ResourceName};

use super::{ContainerEdits, Omission, SpecifiedDevice, ThinHook};
use crate::plan::{self, Asked, Authority, InjectionPlan, PlanError, SpecDevices};
use crate::request::{
    Environment, MAX_REQUEST, RefusedRequest, Request, RequestNames, RequestSource,
};

/// The name of a kind's device that represents all.
const ALL: &str = "all";

/// What separates the devices of a grant from the uid of the claim that has them. No id
/// has it.
pub const CLAIM_MARK: char = '@';

#[derive(Debug, Clone, Copy)]
pub struct Description<'a> {
    /// The hook of the thin form. Without one the form is plain: mounts and variables
    /// beside the nodes.
    pub hook: Option<ThinHook<'a>>,
    /// The host's root as engines see it.
    pub host_root: &'a Path,
}

#[derive(Debug, Default)]
pub struct Described {
    /// Each with its kind.
    pub devices: Vec<(ResourceName, SpecifiedDevice)>,
    /// What is missing there, and why.
    pub omissions: Vec<Omission>,
}

#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    #[error(transparent)]
    Name(#[from] CdiNameError),
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("its class gives a container nothing")]
    Nothing,
    #[error(
        "the ids of {0} devices are longer than a request may be, {MAX_REQUEST} bytes; name them \
         one by one"
    )]
    TooMany(usize),
}

impl Description<'_> {
    /// Describes the devices of a class: each under its id and its index, and all healthy
    /// ones of a kind together. An unhealthy device has its name as well: a container that
    /// has it must be able to start again, and the hook warns.
    pub fn devices(&self, class: &DeviceClass, found: &FoundClass) -> Described {
        let mut described = Described::default();
        let mut healthy: BTreeMap<&ResourceName, Vec<&Device>> = BTreeMap::new();
        let devices = &found.inventory.devices;
        let names = RequestNames::new(class, &found.inventory);
        let ids = devices.iter().map(|one| (&one.resource, one.id.as_str()));
        let mut used: BTreeSet<(&ResourceName, &str)> = inserted(ids);
        for device in devices {
            let kind = &device.resource;
            let edits = match self.edits(class, found, &[device], device.id.as_str()) {
                Ok((edits, _)) => edits,
                Err(error) => {
                    described.omissions.push(Omission::Device {
                        device: device.id.clone(),
                        is_healthy: device.health.is_healthy(),
                        error,
                    });
                    continue;
                }
            };
            if device.health.is_healthy() {
                healthy.entry(kind).or_default().push(device);
            } else {
                described.omissions.push(Omission::Unhealthy {
                    device: device.id.clone(),
                    kind: kind.clone(),
                    reason: device.health.to_string(),
                });
            }
            // It may be a name of another device, that of several, or one that CDI does not
            // allow; the device still has its id.
            let index = device.index.as_deref();
            let is_own = |index: &&str| {
                names.means_device_alone(device, index) && name_in(kind, index).is_ok()
            };
            let index = index
                .filter(is_own)
                .filter(|index| used.insert((kind, index)));
            for name in [Some(device.id.as_str()), index].into_iter().flatten() {
                let device = SpecifiedDevice {
                    name: name.to_owned(),
                    container_edits: edits.clone(),
                };
                described.devices.push((kind.clone(), device));
            }
        }
        for (kind, devices) in healthy {
            if !used.contains(&(kind, ALL)) {
                self.describe_together(class, found, kind, &devices, &mut described);
            }
        }
        described
    }

    /// Describes some devices of a class together, for the resource claim with this uid: the
    /// hook is told of it, because only the kubelet knows which pods have it. The variables
    /// say what else the container asks for.
    pub fn claimed(
        &self,
        class: &DeviceClass,
        found: &FoundClass,
        devices: &[&Device],
        claim: &str,
        variables: &[(String, String)],
    ) -> Result<ContainerEdits, DescriptionError> {
        let ids: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
        let text = ids.join(",");
        if text.len() > MAX_REQUEST {
            return Err(DescriptionError::TooMany(devices.len()));
        }
        let set = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let environment = Environment::from(set.collect::<Vec<_>>());
        let mut plan = plan_of(class, found, devices, &text, &environment)?;
        plan.env.extend(variables.iter().cloned());
        // As the plugin does: the vendor's programs read it.
        let variable = class.spec.request.env.to_string();
        plan.env.insert(variable, text.clone());
        let (edits, _) = self.of_plan(class, &plan, &format!("{text}{CLAIM_MARK}{claim}"));
        match edits.is_empty() {
            true => Err(DescriptionError::Nothing),
            false => Ok(edits),
        }
    }

    /// Describes the healthy devices of a kind together. They are named one by one: the
    /// class may have devices of other kinds.
    fn describe_together(
        &self,
        class: &DeviceClass,
        found: &FoundClass,
        kind: &ResourceName,
        devices: &[&Device],
        described: &mut Described,
    ) {
        let ids: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
        let ids = ids.join(",");
        let edits = match ids.len() > MAX_REQUEST {
            true => Err(DescriptionError::TooMany(devices.len())),
            false => self.edits(class, found, devices, &ids),
        };
        match edits {
            Ok((container_edits, lacking)) => {
                if !lacking.is_empty() {
                    described.omissions.push(Omission::Lacking {
                        kind: kind.to_string(),
                        lacking: lacking.into_iter().collect(),
                    });
                }
                let device = SpecifiedDevice {
                    name: ALL.to_owned(),
                    container_edits,
                };
                described.devices.push((kind.clone(), device));
            }
            Err(error) => {
                let kind = kind.clone();
                described.omissions.push(Omission::All { kind, error });
            }
        }
    }

    /// What a container gets with these devices, of which a hook is told by the text. The
    /// second value describes what the form lacks.
    fn edits(
        &self,
        class: &DeviceClass,
        found: &FoundClass,
        devices: &[&Device],
        text: &str,
    ) -> Result<(ContainerEdits, BTreeSet<String>), DescriptionError> {
        if let [device] = devices {
            name_in(&device.resource, text)?;
        }
        let plan = plan_of(class, found, devices, text, &Environment::default())?;
        let (edits, lacking) = self.of_plan(class, &plan, text);
        match edits.is_empty() {
            true => Err(DescriptionError::Nothing),
            false => Ok((edits, lacking)),
        }
    }

    fn of_plan(
        &self,
        class: &DeviceClass,
        plan: &InjectionPlan,
        text: &str,
    ) -> (ContainerEdits, BTreeSet<String>) {
        match self.hook {
            Some(hook) => {
                let grant = format!("{}={text}", class.name);
                let edits = ContainerEdits::thin(plan, self.host_root, hook, &grant);
                (edits, BTreeSet::new())
            }
            None => ContainerEdits::plain(plan, self.host_root),
        }
    }
}

fn name_in(kind: &ResourceName, name: &str) -> Result<CdiName, CdiNameError> {
    CdiName::try_from(format!("{kind}={name}"))
}

/// The plan for a container that gets these devices. Others are of no interest, and to
/// search among them for each device would take long on a host with thousands.
fn plan_of(
    class: &DeviceClass,
    found: &FoundClass,
    devices: &[&Device],
    text: &str,
    environment: &Environment,
) -> Result<InjectionPlan, DescriptionError> {
    let source = RequestSource::Cdi {
        devices: text.to_owned(),
    };
    let request = Request::parse(class, environment, source)?;
    let request = request.ok_or(DescriptionError::Nothing)?;
    let found = FoundClass {
        inventory: Inventory {
            devices: devices.iter().copied().cloned().collect(),
            host_attributes: found.inventory.host_attributes.clone(),
            ..Inventory::default()
        },
        edits: found.edits.clone(),
    };
    let asked = Asked {
        class,
        request: &request,
        found: &found,
        authority: &Authority::Asker {
            why: "a specification is made for it".into(),
            trusted_capabilities: true,
        },
    };
    Ok(plan::plan(&[asked], &SpecDevices::default())?)
}

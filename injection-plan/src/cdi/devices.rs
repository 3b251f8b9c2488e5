//! Describes the devices of one class for CDI specifications.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use device_class::class::DeviceClass;
use device_class::discover::{Device, FoundClass, Inventory};
use device_class::name::{CdiName, CdiNameError, ResourceName};

use super::{ContainerEdits, Omission, SpecifiedDevice, ThinHook};
use crate::plan::{self, Authority, InjectionPlan, PlanError, PlanInput, SpecDevices};
use crate::request::{
    DeviceList, Environment, Item, MAX_REQUEST, RefusedRequest, Request, RequestNames,
    RequestSource,
};

/// The name of the CDI device that stands for all healthy devices of a kind.
pub(super) const ALL: &str = "all";

/// The character between the devices of a grant and the uid of the resource claim that has
/// them. Device ids cannot contain it.
pub const CLAIM_MARK: char = '@';

/// The form in which devices are described.
#[derive(Debug, Clone, Copy)]
pub struct Description<'a> {
    /// The hook of the thin form, in which the specification has only nodes and the hook adds
    /// everything else. `None` means the plain form, in which the specification also has mounts and
    /// variables.
    pub hook: Option<ThinHook<'a>>,
    /// The directory at which engines see the root of the host.
    pub host_root: &'a Path,
}

/// The descriptions of devices of one or more classes.
#[derive(Debug, Default)]
pub struct DescribedDevices {
    /// The described devices, each with its kind.
    pub devices: Vec<(ResourceName, SpecifiedDevice)>,
    /// The devices and parts that are not described, each with the reason.
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
    #[error("a specification without the hook cannot give a container {0}")]
    HookOnly(String),
    #[error(
        "the ids of {0} devices are longer than a request may be, {MAX_REQUEST} bytes; name them \
         one by one"
    )]
    TooMany(usize),
}

impl Description<'_> {
    /// Describes the devices of a class: each device by its id and by its index, and all healthy
    /// devices of a kind together as `all`. An unhealthy device is described, too, so that a
    /// container that has it can be started again. The hook then logs a warning.
    pub fn describe_devices(&self, class: &DeviceClass, found: &FoundClass) -> DescribedDevices {
        let mut described = DescribedDevices::default();
        let mut healthy: BTreeMap<&ResourceName, Vec<&Device>> = BTreeMap::new();
        let devices = &found.inventory.devices;
        let names = RequestNames::new(class, &found.inventory);
        let ids = devices.iter().map(|one| (&one.resource, one.id.as_str()));
        let mut used: BTreeSet<(&ResourceName, &str)> = inserted(ids);
        for device in devices {
            let kind = &device.resource;
            let edits = match self.make_edits(class, found, &[device]) {
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
            // The index is left out if a request would understand it as another device, or if CDI does
            // not allow it as a name. The device can still be requested by its id.
            let index = device.index.as_deref();
            let is_own = |index: &&str| {
                names.means_device_alone(device, index) && qualified_name(kind, index).is_ok()
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

    /// Describes devices of a class together, for the resource claim with the uid `claim`.
    /// The hook gets the uid, because only the kubelet knows which pods have the claim.
    /// `variables` are added to the container's environment, and select capabilities and
    /// other parts of the request.
    pub fn describe_claim(
        &self,
        class: &DeviceClass,
        found: &FoundClass,
        devices: &[&Device],
        claim: &str,
        variables: &[(String, String)],
    ) -> Result<ContainerEdits, DescriptionError> {
        let ids = list_ids(devices);
        let text = ids.as_str();
        if text.len() > MAX_REQUEST {
            return Err(DescriptionError::TooMany(devices.len()));
        }
        let set = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let environment = Environment::from(set.collect::<Vec<_>>());
        let mut plan = make_plan(class, found, devices, &ids, &environment)?;
        plan.env.extend(variables.iter().cloned());
        // The vendor's programs read this variable. The device plugin sets it as well.
        let variable = class.spec.request.env.to_string();
        plan.env.insert(variable, text.to_owned());
        let argument = format!("{text}{CLAIM_MARK}{claim}");
        let (edits, lacking) = self.edits_from_plan(class, &plan, &argument);
        require_edits(&edits, lacking)?;
        Ok(edits)
    }

    /// Describes the healthy devices of a kind together, as the CDI device `all`. The hook's argument
    /// lists their ids instead of the word `all`, which would include devices of the class that have
    /// another kind.
    fn describe_together(
        &self,
        class: &DeviceClass,
        found: &FoundClass,
        kind: &ResourceName,
        devices: &[&Device],
        described: &mut DescribedDevices,
    ) {
        let edits = if list_ids(devices).as_str().len() > MAX_REQUEST {
            Err(DescriptionError::TooMany(devices.len()))
        } else {
            self.make_edits(class, found, devices)
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

    /// Returns the edits by which a container gets these devices, and the names of the parts that the
    /// plain form cannot express.
    fn make_edits(
        &self,
        class: &DeviceClass,
        found: &FoundClass,
        devices: &[&Device],
    ) -> Result<(ContainerEdits, BTreeSet<String>), DescriptionError> {
        if let [device] = devices {
            qualified_name(&device.resource, device.id.as_str())?;
        }
        let ids = list_ids(devices);
        let plan = make_plan(class, found, devices, &ids, &Environment::default())?;
        let (edits, lacking) = self.edits_from_plan(class, &plan, ids.as_str());
        let lacking = require_edits(&edits, lacking)?;
        Ok((edits, lacking))
    }

    fn edits_from_plan(
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

/// Returns what the edits lack, if there are any edits.
fn require_edits(
    edits: &ContainerEdits,
    lacking: BTreeSet<String>,
) -> Result<BTreeSet<String>, DescriptionError> {
    if !edits.is_empty() {
        Ok(lacking)
    } else if lacking.is_empty() {
        Err(DescriptionError::Nothing)
    } else {
        let texts: Vec<String> = lacking.into_iter().collect();
        Err(DescriptionError::HookOnly(texts.join(", ")))
    }
}

fn qualified_name(kind: &ResourceName, name: &str) -> Result<CdiName, CdiNameError> {
    CdiName::try_from(format!("{kind}={name}"))
}

/// Returns the ids of devices as a request for them.
fn list_ids(devices: &[&Device]) -> DeviceList {
    let ids = devices
        .iter()
        .map(|device| Item::unquoted(device.id.as_str()));
    DeviceList::from_items(ids.collect())
}

/// Makes the plan for a container that gets these devices. The inventory that is passed to the
/// planner has no other devices, because the planner searches the whole inventory, and it is called
/// for each device of the host.
fn make_plan(
    class: &DeviceClass,
    found: &FoundClass,
    devices: &[&Device],
    ids: &DeviceList,
    environment: &Environment,
) -> Result<InjectionPlan, DescriptionError> {
    let source = RequestSource::Cdi {
        devices: ids.clone(),
    };
    let request = Request::parse(class, environment, source)?.ok_or(DescriptionError::Nothing)?;
    let found = FoundClass {
        inventory: Inventory {
            devices: devices.iter().copied().cloned().collect(),
            host_attributes: found.inventory.host_attributes.clone(),
            ..Inventory::default()
        },
        edits: found.edits.clone(),
    };
    let input = PlanInput {
        class,
        request: &request,
        found: &found,
        authority: &Authority::Requester {
            reason: "a specification is made for it".into(),
            trusted_capabilities: true,
        },
    };
    Ok(plan::plan(&[input], &SpecDevices::default())?)
}

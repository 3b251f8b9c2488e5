//! Builds the CDI devices of one class. CDI specifications are made from these devices.

use device_class::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use device_class::class::DeviceClass;
use device_class::discover::{Device, FoundClass, Inventory};
use device_class::name::{CdiName, CdiNameError, ResourceName};

use super::{CdiHookOptions, ContainerEdits, Omission, SpecifiedDevice};
use crate::plan::{self, Authority, InjectionPlan, PlanError, PlanInput, SpecDevices};
use crate::request::{
    DeviceList, DeviceListItem, Environment, MAX_REQUEST_BYTES, RefusedRequest, Request,
    RequestNames, RequestSource,
};

/// The name of the CDI device that stands for all healthy devices of a kind, as in
/// `vendor.com/npu=all`.
pub(super) const ALL_DEVICES_NAME: &str = "all";

/// The separator between the device ids and the uid of a resource claim, in the hook's argument
/// `--cdi CLASS=DEVICES@UID`. Device ids cannot contain this character.
pub const CLAIM_SEPARATOR: char = '@';

/// The form of a CDI specification. A thin specification has the device nodes and a hook, which
/// adds everything else to the container. A plain specification has no hook.
#[derive(Debug, Clone, Copy)]
pub struct SpecificationForm<'a> {
    /// The hook of a thin specification. It adds everything to a container except the device nodes.
    /// `None` means a plain specification, which lists the mounts as well and needs no hook.
    pub hook: Option<CdiHookOptions<'a>>,
    /// The path at which container engines see the host's root directory.
    pub host_root: &'a Path,
}

/// The CDI devices of one or more classes. They are not grouped into specifications yet.
#[derive(Debug, Default)]
pub struct CdiDevices {
    /// The CDI devices, each with its resource. The CDI kind of the device is derived from the
    /// resource.
    pub devices: Vec<(ResourceName, SpecifiedDevice)>,
    /// The host's devices for which `devices` has no CDI device, and the files that a CDI device
    /// lacks, each with the reason.
    pub omissions: Vec<Omission>,
}

#[derive(Debug, thiserror::Error)]
pub enum CdiDeviceError {
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
        "the ids of {0} devices are longer than a request may be, {MAX_REQUEST_BYTES} bytes; name them \
         one by one"
    )]
    TooMany(usize),
}

impl SpecificationForm<'_> {
    /// Builds the CDI devices of a class: one for each device id and each index, and one with the
    /// name `all` for all healthy devices of a kind. An unhealthy device is included as well, so
    /// that a container with this device can be restarted. The hook then logs a warning.
    pub fn build_cdi_devices(&self, class: &DeviceClass, found_class: &FoundClass) -> CdiDevices {
        let mut cdi_devices = CdiDevices::default();
        let mut healthy_by_resource: BTreeMap<&ResourceName, Vec<&Device>> = BTreeMap::new();
        let devices = &found_class.inventory.devices;
        let request_names = RequestNames::new(class, &found_class.inventory);
        let ids = devices
            .iter()
            .map(|device| (&device.resource, device.id.as_str()));
        let mut used_names: BTreeSet<(&ResourceName, &str)> = collect_by_insertion(ids);
        for device in devices {
            let kind = &device.resource;
            let edits = match self.make_edits(class, found_class, &[device]) {
                Ok((edits, _)) => edits,
                Err(error) => {
                    cdi_devices.omissions.push(Omission::Device {
                        device: device.id.clone(),
                        is_healthy: device.health.is_healthy(),
                        error,
                    });
                    continue;
                }
            };
            if device.health.is_healthy() {
                healthy_by_resource.entry(kind).or_default().push(device);
            } else {
                cdi_devices.omissions.push(Omission::Unhealthy {
                    device: device.id.clone(),
                    kind: kind.clone(),
                    reason: device.health.to_string(),
                });
            }
            // The index becomes a name of the CDI device only if a request for the index selects
            // this device alone, and if CDI allows the index as a name. The id is always a name.
            let device_index = device.index.as_deref();
            let is_usable = |index: &&str| {
                request_names.identifies_device(device, index) && make_cdi_name(kind, index).is_ok()
            };
            let index = device_index
                .filter(is_usable)
                .filter(|index| used_names.insert((kind, index)));
            for name in [Some(device.id.as_str()), index].into_iter().flatten() {
                let device = SpecifiedDevice {
                    name: name.to_owned(),
                    container_edits: edits.clone(),
                };
                cdi_devices.devices.push((kind.clone(), device));
            }
        }
        for (kind, devices) in healthy_by_resource {
            if !used_names.contains(&(kind, ALL_DEVICES_NAME)) {
                self.add_all_devices(class, found_class, kind, &devices, &mut cdi_devices);
            }
        }
        cdi_devices
    }

    /// Returns the CDI edits for `devices`, which are all devices of the resource claim with the
    /// uid `claim_uid`. The hook gets the uid as an argument, because only the kubelet knows which
    /// pods have the claim. `variables` are added to the container's environment. They can also
    /// select capabilities of the class.
    pub fn build_claim_edits(
        &self,
        class: &DeviceClass,
        found_class: &FoundClass,
        devices: &[&Device],
        claim_uid: &str,
        variables: &[(String, String)],
    ) -> Result<ContainerEdits, CdiDeviceError> {
        let ids = make_id_list(devices);
        let device_list = ids.as_str();
        if device_list.len() > MAX_REQUEST_BYTES {
            return Err(CdiDeviceError::TooMany(devices.len()));
        }
        let assignments = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let environment = Environment::from(assignments.collect::<Vec<_>>());
        let mut plan = plan_device_injection(class, found_class, devices, &ids, &environment)?;
        plan.env.extend(variables.iter().cloned());
        // The vendor's programs read this variable. The device plugin sets it as well.
        let variable_name = class.spec.request.env.to_string();
        plan.env.insert(variable_name, device_list.to_owned());
        let hook_argument = format!("{device_list}{CLAIM_SEPARATOR}{claim_uid}");
        let (edits, missing_parts) = self.make_edits_from_plan(class, &plan, &hook_argument);
        check_has_edits(&edits, missing_parts)?;
        Ok(edits)
    }

    /// Adds the CDI device `all`, which stands for all healthy `devices` of a kind. The argument of
    /// the hook lists their ids instead of the word `all`, because `all` would also include the
    /// devices of the class that have another kind.
    fn add_all_devices(
        &self,
        class: &DeviceClass,
        found_class: &FoundClass,
        kind: &ResourceName,
        devices: &[&Device],
        cdi_devices: &mut CdiDevices,
    ) {
        let edits = if make_id_list(devices).as_str().len() > MAX_REQUEST_BYTES {
            Err(CdiDeviceError::TooMany(devices.len()))
        } else {
            self.make_edits(class, found_class, devices)
        };
        match edits {
            Ok((container_edits, missing_parts)) => {
                if !missing_parts.is_empty() {
                    cdi_devices.omissions.push(Omission::MissingParts {
                        kind: kind.to_string(),
                        part_names: missing_parts.into_iter().collect(),
                    });
                }
                let device = SpecifiedDevice {
                    name: ALL_DEVICES_NAME.to_owned(),
                    container_edits,
                };
                cdi_devices.devices.push((kind.clone(), device));
            }
            Err(error) => {
                let kind = kind.clone();
                cdi_devices.omissions.push(Omission::All { kind, error });
            }
        }
    }

    /// Returns the CDI edits for a container that gets `devices`. The second value describes the
    /// parts of the injection plan that a plain specification cannot express, such as links and
    /// masks.
    fn make_edits(
        &self,
        class: &DeviceClass,
        found_class: &FoundClass,
        devices: &[&Device],
    ) -> Result<(ContainerEdits, BTreeSet<String>), CdiDeviceError> {
        if let [device] = devices {
            make_cdi_name(&device.resource, device.id.as_str())?;
        }
        let ids = make_id_list(devices);
        let plan =
            plan_device_injection(class, found_class, devices, &ids, &Environment::default())?;
        let (edits, missing_parts) = self.make_edits_from_plan(class, &plan, ids.as_str());
        let missing_parts = check_has_edits(&edits, missing_parts)?;
        Ok((edits, missing_parts))
    }

    fn make_edits_from_plan(
        &self,
        class: &DeviceClass,
        plan: &InjectionPlan,
        hook_argument: &str,
    ) -> (ContainerEdits, BTreeSet<String>) {
        match self.hook {
            Some(hook) => {
                let grant = format!("{}={hook_argument}", class.name);
                let edits = ContainerEdits::from_plan_with_hook(plan, self.host_root, hook, &grant);
                (edits, BTreeSet::new())
            }
            None => ContainerEdits::from_plan_without_hook(plan, self.host_root),
        }
    }
}

/// Returns `missing_parts` unchanged if there are any edits.
///
/// # Errors
/// Returns an error if `edits` is empty, because CDI does not allow a device without edits.
fn check_has_edits(
    edits: &ContainerEdits,
    missing_parts: BTreeSet<String>,
) -> Result<BTreeSet<String>, CdiDeviceError> {
    if !edits.is_empty() {
        Ok(missing_parts)
    } else if missing_parts.is_empty() {
        Err(CdiDeviceError::Nothing)
    } else {
        let texts: Vec<String> = missing_parts.into_iter().collect();
        Err(CdiDeviceError::HookOnly(texts.join(", ")))
    }
}

fn make_cdi_name(kind: &ResourceName, name: &str) -> Result<CdiName, CdiNameError> {
    CdiName::try_from(format!("{kind}={name}"))
}

fn make_id_list(devices: &[&Device]) -> DeviceList {
    let ids = devices
        .iter()
        .map(|device| DeviceListItem::from_unquoted_text(device.id.as_str()));
    DeviceList::from_items(ids.collect())
}

/// Makes the injection plan of a container that gets `devices`. The planner gets an inventory with
/// only these devices, because it searches the whole inventory each time. With all devices of the
/// host, the time would grow with the square of their number.
fn plan_device_injection(
    class: &DeviceClass,
    found_class: &FoundClass,
    devices: &[&Device],
    ids: &DeviceList,
    environment: &Environment,
) -> Result<InjectionPlan, CdiDeviceError> {
    let source = RequestSource::Cdi {
        devices: ids.clone(),
    };
    let request = Request::parse(class, environment, source)?.ok_or(CdiDeviceError::Nothing)?;
    let found_class = FoundClass {
        inventory: Inventory {
            devices: devices.iter().copied().cloned().collect(),
            host_attributes: found_class.inventory.host_attributes.clone(),
            ..Inventory::default()
        },
        edits: found_class.edits.clone(),
    };
    let input = PlanInput {
        class,
        request: &request,
        found_class: &found_class,
        authority: &Authority::Requester {
            reason: "a specification is made for it".into(),
            allows_trusted_capabilities: true,
        },
    };
    Ok(plan::plan_injection(&[input], &SpecDevices::default())?)
}

//! `boathook attach`: plans which devices, files and rules a running container lacks, and adds them.
//! Devices with network interfaces are refused.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::device::DeviceRule;
use device_class::name::ClassName;
use injection_plan::plan::{Action, INJECTED, InjectionPlan, InjectionStep, StepUser};

use crate::apply;
use crate::live::LiveError;
use crate::live::announce::{DeviceChange, announce_devices};
use crate::live::container::{ContainerLocation, LockedContainer};
use crate::live::reconcile::{ContainerChange, is_injected};
use crate::live::record::{AttachedDevice, AttachmentRecord};
use crate::oci::{AttachRequest, CdiGrant};
use crate::planner::{self, Caller};
use crate::sys::deadline::Stage;

/// The plan to attach devices to a container, which this process has locked.
pub(crate) struct PlannedAttachment {
    container: LockedContainer,
    /// The steps that the container lacks.
    pub(crate) plan: InjectionPlan,
    /// The device rules that the container has after the attachment.
    all_rules: Vec<DeviceRule>,
    /// The steps for all devices that the container has after the attachment.
    all_steps: Vec<InjectionStep>,
    devices: Vec<AttachedDevice>,
}

impl PlannedAttachment {
    /// Plans the attachment of devices to a container that runs. Nothing is changed.
    pub(crate) fn plan(
        location: &ContainerLocation,
        requested: &[CdiGrant],
        forced: bool,
        config: &Config,
    ) -> Result<Self, LiveError> {
        let mut locked = LockedContainer::open(location, config)?;
        Stage::Planning.begin();
        let attached = locked.record.attached_grants();
        let requested: Vec<AttachRequest> = requested
            .iter()
            .map(|grant| AttachRequest {
                grant: grant.clone(),
                forced,
            })
            .collect();
        let bundle = &mut locked.container.bundle;
        // The plan includes the container's other devices, because libraries and masks are for all
        // devices together.
        bundle.attached = [attached.clone(), requested.clone()].concat();
        let mut earlier_classes: Vec<&ClassName> =
            attached.iter().map(|it| &it.grant.class).collect();
        let mut planner_error = None;
        let mut plan = match planner::plan_for(bundle, &Caller::ChangeRunning, config) {
            Ok(plan) => plan,
            // Without the other devices in its plan, the device would cover the one that the
            // container has at this path.
            Err(error) if error.is_conflict() => return Err(error.into()),
            Err(error) => {
                earlier_classes.clear();
                bundle.attached = requested;
                let mut plan = planner::plan_for(bundle, &Caller::Attach, config)?;
                plan.warnings.push(format!(
                    "the container's other devices are left as they are: {}",
                    crate::log::chain(&error)
                ));
                planner_error = Some(error);
                plan
            }
        };
        // The grants of one class are in the order of the requests: those of devices that were
        // attached earlier come first.
        plan.grants.retain(|grant| {
            let is_class = |class: &&ClassName| **class == grant.class;
            if !grant.given_by.is_user() {
                return false;
            }
            match earlier_classes.iter().position(is_class) {
                Some(position) => {
                    earlier_classes.swap_remove(position);
                    false
                }
                None => true,
            }
        });
        let mut devices = Vec::new();
        for grant in &plan.grants {
            devices.extend(grant.devices.iter().map(|device| AttachedDevice {
                class: grant.class.clone(),
                device: device.clone(),
                given_by: grant.given_by.clone(),
                forced,
                name: grant.names.get(device).cloned(),
                places: grant.places.get(device).cloned().unwrap_or_default(),
                late: false,
            }));
        }
        if devices.is_empty() {
            let reasons = plan.warnings.iter().map(|reason| format!(": {reason}"));
            return Err(LiveError::NoDevice(reasons.collect()));
        }
        // The container's own request may mean more today than at its start, such as `all`.
        let has_device = |users: &[StepUser]| {
            let mut all = locked.record.devices.iter().chain(&devices);
            all.any(|device| device.is_needed_by_any(users))
        };
        plan.steps.retain(|step| match &step.action {
            Action::Allow { .. }
            | Action::Node { .. }
            | Action::MakeNode { .. }
            | Action::Link { .. }
            | Action::NetInterfaces { .. }
            | Action::Prepare(_) => has_device(&step.users),
            _ => true,
        });
        if let Some(step) = plan
            .steps
            .iter()
            .find(|step| is_net_interface(&step.action))
        {
            return Err(LiveError::NetInterface(step.user_labels.clone()));
        }
        let all_rules = apply::list_rules(&plan);
        let all_steps = plan.steps.clone();
        locked.retain_missing_steps(&mut plan, &devices, &AttachmentRecord::default(), config)?;
        // A new injected directory would cover that of the container's other devices.
        if let Some(error) = planner_error
            && plan.steps.iter().any(|step| is_injected(&step.action))
            && locked
                .container
                .namespace
                .open_file(Path::new(INJECTED))?
                .is_some()
        {
            return Err(error.into());
        }
        Ok(PlannedAttachment {
            container: locked,
            plan,
            all_rules,
            all_steps,
            devices,
        })
    }

    /// Returns the devices, each as its class and its id.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&str, &str)> {
        let devices = self.devices.iter();
        devices.map(|device| (device.class.as_str(), device.device.as_str()))
    }
}

/// Attaches the devices and records them. If this fails, the container is as before. Returns
/// warnings.
pub(crate) fn attach(
    planned: PlannedAttachment,
    config: &Config,
) -> Result<Vec<String>, LiveError> {
    let PlannedAttachment {
        container,
        plan,
        all_rules,
        all_steps,
        devices,
    } = planned;
    let record = &container.record;
    if plan.steps.is_empty() {
        // The container may have the rules and files for another device only. They stay as long as
        // one of the two devices is attached.
        let mut with_users = record.clone();
        with_users.add_content(devices, Vec::new(), Vec::new());
        with_users.add_users(&all_steps);
        if (&with_users.rules, &with_users.files) != (&record.rules, &record.files) {
            container.save_if_unchanged(&with_users)?;
        }
        return Ok(Vec::new());
    }
    let is_new = |device: &&AttachedDevice| {
        let mut known = record.devices.iter();
        !known.any(|known| known.device_ref() == device.device_ref())
    };
    let empty_record = record.without_content();
    let new_devices = AttachmentRecord {
        devices: devices.iter().filter(is_new).cloned().collect(),
        ..empty_record.clone()
    };
    let change = ContainerChange {
        stale: &empty_record,
        kept_rules: &[],
        plan: &plan,
        all_rules: &all_rules,
        all_steps: &all_steps,
        devices,
        lasting_users: &BTreeSet::new(),
    };
    let warnings = container.change(change, config)?;
    drop(container);
    if plan.grants.iter().any(|grant| grant.follow) {
        announce_devices(&new_devices, DeviceChange::Attached, config);
    }
    Ok(warnings)
}

fn is_net_interface(action: &Action) -> bool {
    matches!(action, Action::NetInterfaces { .. })
}

//! `boathook attach`: plans which devices, files and rules a running container does not have yet,
//! and adds them. Devices with network interfaces are refused.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::device::DeviceRule;
use device_class::discover::is_sysfs_link_directory;
use device_class::name::ClassName;
use hook::apply;
use hook::attachment::{AttachmentRecord, ContainerDevice};
use hook::oci::{AttachRequest, CdiGrant};
use hook::planner::{self, Caller};
use hook::sys::deadline::Stage;
use injection_plan::plan::{Action, INJECTED_DIR, InjectionPlan, InjectionStep, StepOwner};

use crate::live::ContainerChangeError;
use crate::live::announce::{DeviceChange, announce_devices};
use crate::live::container::{ContainerLocation, LockedContainer};
use crate::live::reconcile::{ContainerChange, OtherLinks, is_in_injected_dir};

/// The plan for attaching devices to a container. The container stays locked as long as this value
/// exists.
pub(crate) struct PlannedAttachment {
    locked_container: LockedContainer,
    /// The plan without the steps whose node, file or rule the container already has.
    pub plan: InjectionPlan,
    /// The device rules that the container has after the attachment.
    final_rules: Vec<DeviceRule>,
    /// The steps for all devices that the container has after the attachment.
    final_steps: Vec<InjectionStep>,
    devices: Vec<ContainerDevice>,
}

impl PlannedAttachment {
    /// Locks a running container, and plans how devices are attached to it. Nothing is changed yet.
    pub(crate) fn plan(
        location: &ContainerLocation,
        requested_grants: &[CdiGrant],
        is_forced: bool,
        config: &Config,
    ) -> Result<Self, ContainerChangeError> {
        let mut locked_container = LockedContainer::open(location, config)?;
        Stage::Planning.begin();
        let earlier_requests = locked_container.record.list_attach_requests();
        let new_requests: Vec<AttachRequest> = requested_grants
            .iter()
            .map(|grant| AttachRequest {
                grant: grant.clone(),
                is_forced,
            })
            .collect();
        let bundle = &mut locked_container.container.bundle;
        // The plan also includes the devices that were attached earlier. Some steps serve all
        // devices together, such as the libraries in one tmpfs and the mounts that hide files.
        bundle.attach_requests = [earlier_requests.clone(), new_requests.clone()].concat();
        let mut earlier_classes: Vec<&ClassName> = earlier_requests
            .iter()
            .map(|request| &request.grant.class)
            .collect();
        let mut planner_error = None;
        let mut plan = match planner::plan_container_injection(
            bundle,
            &Caller::RunningContainerChange,
            config,
        ) {
            Ok(plan) => plan,
            // A conflict means that two devices need the same path. It is returned as an error,
            // because a second plan with only the requested devices would not show it. The new node
            // would then hide the existing node at this path.
            Err(error) if error.is_conflict() => return Err(error.into()),
            Err(error) => {
                earlier_classes.clear();
                bundle.attach_requests = new_requests;
                let mut plan = planner::plan_container_injection(bundle, &Caller::Attach, config)?;
                plan.warnings.push(format!(
                    "the container's other devices are left as they are: {}",
                    hook::log::format_error_chain(&error)
                ));
                planner_error = Some(error);
                plan
            }
        };
        // Only the grants for the new devices are kept. The grants of one class are in the order of
        // the requests, so the grants of previously attached devices come first.
        plan.grants.retain(|grant| {
            let is_same_class = |class: &&ClassName| **class == grant.class;
            if !grant.grant_origin.is_user() {
                return false;
            }
            match earlier_classes.iter().position(is_same_class) {
                Some(position) => {
                    earlier_classes.swap_remove(position);
                    false
                }
                None => true,
            }
        });
        let mut devices = Vec::new();
        for grant in &plan.grants {
            devices.extend(grant.devices.iter().map(|device| ContainerDevice {
                class: grant.class.clone(),
                device_id: device.clone(),
                grant_origin: grant.grant_origin.clone(),
                is_forced,
                name: grant.names.get(device).cloned(),
                node_paths: grant.node_paths.get(device).cloned().unwrap_or_default(),
                has_arrived_late: false,
            }));
        }
        if devices.is_empty() {
            let reasons = plan.warnings.iter().map(|reason| format!(": {reason}"));
            return Err(ContainerChangeError::NoDevice(reasons.collect()));
        }
        // The container's own request, such as `all`, may select more devices now than when the
        // container was started. The steps for these additional devices are removed from the plan.
        let is_for_attached_device = |owners: &[StepOwner]| {
            let mut all_devices = locked_container.record.devices.iter().chain(&devices);
            all_devices.any(|device| device.matches_any_owner(owners))
        };
        plan.steps.retain(|step| match &step.action {
            Action::Allow { .. }
            | Action::Node { .. }
            | Action::MakeNode { .. }
            | Action::Link { .. }
            | Action::NetInterfaces { .. }
            | Action::Prepare(_) => is_for_attached_device(&step.owners),
            _ => true,
        });
        if let Some(step) = plan
            .steps
            .iter()
            .find(|step| is_net_interface(&step.action))
        {
            return Err(ContainerChangeError::NetInterface(
                step.owner_labels.clone(),
            ));
        }
        if planner_error.is_some() {
            keep_other_devices_listed(&mut plan, &locked_container, config)?;
        }
        let final_rules = apply::list_planned_rules(&plan);
        let final_steps = plan.steps.clone();
        locked_container.retain_missing_steps(
            &mut plan,
            &devices,
            &AttachmentRecord::default(),
            config,
        )?;
        // The plan does not include the container's other devices. So it must not mount a new tmpfs
        // for injected files, which would hide the existing tmpfs with the files of the other
        // devices.
        if let Some(error) = planner_error
            && plan
                .steps
                .iter()
                .any(|step| is_in_injected_dir(&step.action))
            && locked_container
                .container
                .namespace
                .open_file(Path::new(INJECTED_DIR))?
                .is_some()
        {
            return Err(error.into());
        }
        Ok(PlannedAttachment {
            locked_container,
            plan,
            final_rules,
            final_steps,
            devices,
        })
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = (&str, &str)> {
        let devices = self.devices.iter();
        devices.map(|device| (device.class.as_str(), device.device_id.as_str()))
    }
}

/// Attaches the planned devices to the container, and records them. Undoes the change if it fails.
/// Returns warnings.
pub(crate) fn attach(
    planned_attachment: PlannedAttachment,
    config: &Config,
) -> Result<Vec<String>, ContainerChangeError> {
    let PlannedAttachment {
        locked_container,
        plan,
        final_rules,
        final_steps,
        devices,
    } = planned_attachment;
    let record = &locked_container.record;
    if plan.steps.is_empty() {
        // The container already has all rules and files, because its other devices need them. The
        // new devices are recorded as additional owners. So a rule or file is removed only together
        // with its last owner.
        let mut updated_record = record.clone();
        updated_record.add_attachments(devices, Vec::new(), Vec::new());
        updated_record.add_step_owners(&final_steps);
        if (&updated_record.rules, &updated_record.files) != (&record.rules, &record.files) {
            locked_container.save_if_unchanged(&updated_record)?;
        }
        return Ok(Vec::new());
    }
    let is_new = |device: &&ContainerDevice| {
        let mut recorded_devices = record.devices.iter();
        !recorded_devices.any(|recorded_device| recorded_device.device_ref() == device.device_ref())
    };
    let empty_record = record.without_attachments();
    let new_device_record = AttachmentRecord {
        devices: devices.iter().filter(is_new).cloned().collect(),
        ..empty_record.clone()
    };
    let change = ContainerChange {
        stale_content: &empty_record,
        preserved_rules: &[],
        plan: &plan,
        final_rules: &final_rules,
        final_steps: &final_steps,
        devices,
        permanent_step_owners: &BTreeSet::new(),
    };
    let warnings = locked_container.apply_change(change, config)?;
    drop(locked_container);
    if plan.grants.iter().any(|grant| grant.is_followed) {
        announce_devices(&new_device_record, DeviceChange::Attached, config);
    }
    Ok(warnings)
}

/// Changes a plan that lacks the container's other devices, so that their masks still list them. A
/// mask below `/sys/class` or `/sys/bus` keeps their links. Any other mask stays as it is.
fn keep_other_devices_listed(
    plan: &mut InjectionPlan,
    locked_container: &LockedContainer,
    config: &Config,
) -> Result<(), ContainerChangeError> {
    let namespace = &locked_container.container.namespace;
    let mut present_masks = BTreeSet::new();
    for step in &plan.steps {
        if let Action::Mask { path, .. } = &step.action
            && !is_sysfs_link_directory(path)
            && let Some(directory) = namespace.open_directory(path)?
            && directory.is_tmpfs()?
        {
            present_masks.insert(path.clone());
        }
    }
    plan.steps.retain(
        |step| !matches!(&step.action, Action::Mask { path, .. } if present_masks.contains(path)),
    );
    let host = planner::open_host(config)?;
    OtherLinks::find(plan, &BTreeSet::new(), namespace, &host)?.add_to_plan(plan);
    Ok(())
}

fn is_net_interface(action: &Action) -> bool {
    matches!(action, Action::NetInterfaces { .. })
}

//! Gives a container the device nodes that its devices have on the host now. If the host does not
//! have a device, the nodes of the device are removed. Only devices of classes with `follow = true`
//! are changed.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device_class::config::Config;
use device_class::device::DeviceNumber;
use device_class::discover::is_sysfs_link_directory;
use device_class::name::{ClassName, DeviceId, DeviceRef};
use hook::apply;
use hook::attachment::{
    AttachmentRecord, AwaitedRequest, ContainerDevice, CreatedFile, RecordedRule, list_step_rules,
    make_substitute_id, to_st_rdev,
};
use hook::log;
use hook::planner;
use hook::sys::deadline::{self, Deadline};
use injection_plan::plan::{Action, InjectionPlan, InjectionStep, SpecDevices, StepOwner};

use crate::live::ContainerChangeError;
use crate::live::container::LockedContainer;
use crate::live::reconcile::arrivals::add_arrived_devices;
use crate::live::reconcile::other_links::has_only_followed_classes;
use crate::live::reconcile::{ContainerChange, FollowedDevice, HostSnapshot, OtherLinks};

/// Changes a container so that the devices `followed_devices` have the same device nodes in the
/// container as on the host now. Returns whether the container was changed. Waits at most
/// `lock_timeout` for the container's lock.
pub(crate) fn replace_devices(
    record: &AttachmentRecord,
    followed_devices: &[FollowedDevice<'_>],
    snapshot: &HostSnapshot,
    lock_timeout: Duration,
    config: &Config,
) -> Result<bool, ContainerChangeError> {
    let deadline =
        Deadline::start(deadline::DEADLINE_SECONDS).map_err(ContainerChangeError::Fork)?;
    let mut locked_container = LockedContainer::from_record(record, lock_timeout, config)?;
    let LockedContainer {
        container,
        record: locked_record,
        ..
    } = &mut locked_container;
    // The arrived devices are added to the locked record and not to `record`. Since `record` was
    // read, `detach` may have cancelled requests for them.
    let has_arrived_devices =
        add_arrived_devices(locked_record, &container.bundle, snapshot, config)?;
    // A device may have been detached since `record` was read, and must not return to the
    // container. So only devices that are still in the locked record are replaced.
    let recorded_refs: BTreeSet<DeviceRef> = locked_container
        .record
        .devices
        .iter()
        .map(ContainerDevice::device_ref)
        .collect();
    let followed_devices: Vec<_> = followed_devices
        .iter()
        .filter(|followed_device| recorded_refs.contains(&followed_device.device.device_ref()))
        .collect();
    // The name in a request may lead to no device now. Such a request must not get the id of a
    // device to which only another name leads.
    let may_get_id = |request: &AwaitedRequest, id: &DeviceId| {
        let mut present_devices = followed_devices.iter().filter_map(|followed_device| {
            Some((
                &followed_device.device.class,
                &followed_device.host_device.as_ref()?.id,
            ))
        });
        !present_devices.any(|present_device| present_device == (&request.class, id))
            || snapshot.is_fulfilled_by(request, id)
    };
    let renamed_refs = locked_container
        .record
        .rename_devices(&find_new_ids(&followed_devices), may_get_id);
    let mut replaced_devices = Vec::new();
    let mut followed_refs = BTreeSet::new();
    let mut grants = Vec::new();
    for followed_device in followed_devices {
        let previous_ref = followed_device.device.device_ref();
        let current_ref = renamed_refs.get(&previous_ref).unwrap_or(&previous_ref);
        let devices = &locked_container.record.devices;
        let Some(device) = devices
            .iter()
            .find(|device| device.device_ref() == *current_ref)
        else {
            continue;
        };
        followed_refs.insert(current_ref.clone());
        if let Some(host_device) = &followed_device.host_device {
            // If the ids still differ after the renaming, the record has the device twice, under
            // two names. The entry with the other id is skipped here. The nodes are replaced
            // through the entry with the host's id.
            if host_device.id != device.device_id {
                continue;
            }
            let request = device.to_request_by_id(|path| snapshot.is_path_of_device(device, path));
            grants.push(device.to_attach_request(request));
        }
        replaced_devices.push((device.clone(), followed_device.host_device.as_ref()));
    }
    // Files without owners are not removed. `boathook refresh` created them, and they belong to no
    // device.
    let is_followed_device = |owner: &StepOwner| {
        owner
            .device()
            .is_some_and(|device| followed_refs.contains(device))
    };
    let belongs_to_followed_devices =
        |owners: &[StepOwner]| !owners.is_empty() && owners.iter().all(is_followed_device);

    let bundle = &mut locked_container.container.bundle;
    bundle.attach_requests = grants;
    // The engine may already have created nodes of the devices, and the planner plans no node that
    // exists. But the engine's nodes have outdated numbers, or this change replaces them. So the
    // planner must not see them.
    let engine_nodes = mem::take(&mut bundle.spec_devices.nodes);
    let mut plan =
        planner::plan_attached_devices(bundle, snapshot.list_followed_classes(), config)?;
    let class_nodes = ClassNodes::find(&locked_container.record, &plan, snapshot);
    let spec_devices = SpecDevices {
        nodes: locked_container.record.without_recorded_nodes(engine_nodes),
        ..bundle.spec_devices.clone()
    };
    let recorded_classes = snapshot
        .list_followed_classes()
        .filter(|class| class_nodes.classes.contains(&class.class.name));
    planner::add_device_masks(&mut plan, recorded_classes, &spec_devices, config)?;
    plan.steps.retain(|step| {
        let is_node = matches!(
            step.action,
            Action::Allow { .. }
                | Action::Node { .. }
                | Action::MakeNode { .. }
                | Action::Link { .. }
        );
        let is_followed_step = step.owners.iter().all(is_followed_device);
        is_followed_step && is_node
            || class_nodes.includes_step(step)
            || class_nodes.includes_mask(step)
    });
    keep_other_links(&mut plan, &locked_container, snapshot, config)?;

    let mut stale_content = locked_container.record.without_attachments();
    let planned_rules: Vec<_> = list_step_rules(&plan.steps).collect();
    let mut preserved_rules = Vec::new();
    for rule in &locked_container.record.rules {
        let is_planned = planned_rules
            .iter()
            .any(|planned_rule| planned_rule.rule == rule.rule);
        let is_replaced =
            belongs_to_followed_devices(&rule.owners) || class_nodes.is_replaced_rule(rule);
        if is_replaced && !is_planned {
            stale_content.rules.push(rule.clone());
        } else {
            preserved_rules.push(rule.rule);
        }
    }
    let is_planned = |file: &CreatedFile| plan.steps.iter().any(|step| file.is_created_by(step));
    let files = &locked_container.record.files;
    for (index, file) in files.iter().enumerate() {
        // If a planned node has the same path as a node of the engine, it is mounted over the
        // engine's node. The engine's node stays recorded as long as this mount is recorded.
        let mut files_at_path = files[index..]
            .iter()
            .filter(|other_file| other_file.path == file.path);
        let is_replaced =
            belongs_to_followed_devices(&file.owners) || class_nodes.has_path(&file.path);
        if file.is_node_or_link() && is_replaced && !files_at_path.any(is_planned) {
            stale_content.files.push(file.clone());
        }
    }

    let final_steps = plan.steps.clone();
    let mut final_rules = apply::list_planned_rules(&plan);
    preserved_rules.extend(&final_rules);
    locked_container.retain_missing_steps(&mut plan, &[], &stale_content, config)?;
    deadline.cancel();
    if plan.steps.is_empty() && stale_content.files.is_empty() && stale_content.rules.is_empty() {
        if !renamed_refs.is_empty() || has_arrived_devices {
            locked_container.save_if_unchanged(&locked_container.record)?;
        }
        return Ok(false);
    }
    final_rules.extend(&preserved_rules);
    let change = ContainerChange {
        stale_content: &stale_content,
        preserved_rules: &preserved_rules,
        plan: &plan,
        final_rules: &final_rules,
        final_steps: &final_steps,
        devices: Vec::new(),
        permanent_step_owners: &BTreeSet::new(),
    };
    for warning in locked_container.apply_change(change, config)? {
        log::warning(&format!("container {}: {warning}", record.id));
    }
    // The lock is released before the messages are logged, because the logger looks up the names of
    // containers.
    drop(locked_container);
    // A container can make the links of its USB device disappear and come back at any time. So a
    // change of masks alone is not logged: the container could fill the log of the host.
    let is_mask = |step: &InjectionStep| matches!(step.action, Action::Mask { .. });
    if plan.steps.iter().all(is_mask)
        && stale_content.files.is_empty()
        && stale_content.rules.is_empty()
    {
        return Ok(true);
    }
    for (device, host_device) in replaced_devices {
        let (label, class) = (device.label(), &device.class);
        log::log_service_action(&match host_device {
            Some(host_device) => {
                let nodes: Vec<String> =
                    host_device.nodes.iter().map(ToString::to_string).collect();
                let nodes = nodes.join(" ");
                format!("container {}: {label} of {class} is {nodes}", record.id)
            }
            None => format!("container {}: {label} of {class} is gone", record.id),
        });
    }
    Ok(true)
}

/// Adds links to the plan's masks that the container's masks have, and that belong to devices which
/// this module does not follow.
fn keep_other_links(
    plan: &mut InjectionPlan,
    locked_container: &LockedContainer,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<(), ContainerChangeError> {
    let LockedContainer {
        container, record, ..
    } = locked_container;
    let known_paths = snapshot.list_link_paths();
    let host = planner::open_host(config)?;
    let other_links = OtherLinks::find(plan, &known_paths, &container.namespace, &host)?;
    if !other_links.is_empty()
        && !has_only_followed_classes(record, &container.bundle, snapshot, config)
    {
        other_links.add_to_plan(plan);
    }
    Ok(())
}

/// Returns the new ids of the devices whose ids have changed.
///
/// A device that was requested by name may get another id when it is plugged in at another port. If
/// it is unplugged and another device of the container has its id, it gets a substitute id, which
/// is made from its name.
fn find_new_ids(followed_devices: &[&FollowedDevice<'_>]) -> BTreeMap<DeviceRef, DeviceId> {
    let is_id_of_other_device = |device: &ContainerDevice| {
        let mut present_devices = followed_devices.iter().filter_map(|followed_device| {
            Some((
                followed_device.device,
                followed_device.host_device.as_ref()?,
            ))
        });
        present_devices.any(|(other, host_device)| {
            other.class == device.class && host_device.id == device.device_id
        })
    };
    let new_ids = followed_devices.iter().filter_map(|followed_device| {
        let device = followed_device.device;
        let id = match (&followed_device.host_device, &device.name) {
            (Some(host_device), _) if host_device.id != device.device_id => host_device.id.clone(),
            (None, Some(name)) if is_id_of_other_device(device) => make_substitute_id(name)?,
            _ => return None,
        };
        Some((device.device_ref(), id))
    });
    new_ids.collect()
}

/// The container's device nodes that belong to a whole class with `follow = true`, and not to a
/// single device. The host may change the numbers of these nodes.
struct ClassNodes {
    classes: BTreeSet<ClassName>,
    /// The paths of the nodes in the container.
    paths: BTreeSet<PathBuf>,
    /// The numbers that the nodes have on the host.
    numbers: BTreeSet<DeviceNumber>,
    /// The container's rules for the previous numbers of the nodes.
    replaced_rules: Vec<RecordedRule>,
}

impl ClassNodes {
    fn find(record: &AttachmentRecord, plan: &InjectionPlan, snapshot: &HostSnapshot) -> Self {
        let classes = snapshot.list_followed_class_names(record).into_iter();
        let classes: BTreeSet<ClassName> = classes.cloned().collect();
        let is_class = |owner: &StepOwner| classes.iter().any(|class| owner.is_class(class));
        let is_for_classes =
            |owners: &[StepOwner]| !owners.is_empty() && owners.iter().all(is_class);
        let files = record.files.iter();
        let files = files.filter(|file| is_for_classes(&file.owners));
        let recorded_nodes: Vec<(&Path, u64)> = files
            .filter_map(|file| Some((&*file.path, file.device_number()?)))
            .collect();
        let (mut paths, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for step in plan
            .steps
            .iter()
            .filter(|step| is_for_classes(&step.owners))
        {
            let (path, number) = match &step.action {
                Action::Node { mount, number, .. } => (&mount.path, *number),
                Action::MakeNode { path, number, .. } => (path, *number),
                _ => continue,
            };
            if recorded_nodes
                .iter()
                .any(|(recorded_path, _)| *recorded_path == path)
            {
                paths.insert(path.clone());
                numbers.insert(number);
            }
        }
        let nodes_at_paths = recorded_nodes
            .iter()
            .filter(|(path, _)| paths.contains(*path));
        let earlier_numbers: BTreeSet<u64> = nodes_at_paths.map(|(_, number)| *number).collect();
        let is_replaced = |rule: &&RecordedRule| {
            let number = rule.rule.number;
            is_for_classes(&rule.owners)
                && !numbers.contains(&number)
                && earlier_numbers.contains(&to_st_rdev(number))
        };
        let replaced_rules = record.rules.iter().filter(is_replaced).cloned().collect();
        ClassNodes {
            classes,
            paths,
            numbers,
            replaced_rules,
        }
    }

    /// Reports whether a step creates one of the class nodes or allows access to it.
    fn includes_step(&self, step: &InjectionStep) -> bool {
        match &step.action {
            Action::Node { mount, .. } => self.has_path(&mount.path),
            Action::MakeNode { path, .. } => self.has_path(path),
            Action::Allow { rule, .. } => {
                let mut owners = step.owners.iter();
                self.numbers.contains(&rule.number)
                    && owners.any(|owner| self.classes.iter().any(|class| owner.is_class(class)))
            }
            _ => false,
        }
    }

    /// Reports whether a step hides a directory that contains links to devices. Such links change
    /// when the followed devices change.
    fn includes_mask(&self, step: &InjectionStep) -> bool {
        match &step.action {
            Action::Mask { path, .. } => {
                let mut owners = step.owners.iter();
                is_sysfs_link_directory(path)
                    && owners.any(|owner| self.classes.iter().any(|class| owner.is_class(class)))
            }
            _ => false,
        }
    }

    fn is_replaced_rule(&self, rule: &RecordedRule) -> bool {
        self.replaced_rules.contains(rule)
    }

    fn has_path(&self, path: &Path) -> bool {
        self.paths.contains(path)
    }
}

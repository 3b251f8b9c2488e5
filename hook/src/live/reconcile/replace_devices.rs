//! Replaces the followed devices of one container: each gets the nodes that the host has now, and a
//! device that the host does not have is removed. Devices that are not followed stay as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use device_class::config::Config;
use device_class::device::DeviceNumber;
use device_class::discover::has_only_links;
use device_class::name::{ClassName, DeviceId, DeviceRef};
use injection_plan::plan::{Action, InjectionPlan, InjectionStep, StepUser};

use crate::apply;
use crate::live::LiveError;
use crate::live::container::LockedContainer;
use crate::live::reconcile::{ContainerChange, FollowedDevice, HostSnapshot};
use crate::live::record::{
    AttachedDevice, AttachmentRecord, CreatedFile, RecordedRule, device_text::substitute_id,
    list_step_rules, to_st_rdev,
};
use crate::log;
use crate::planner;
use crate::sys::deadline::{self, Deadline};

/// Changes a container so that its followed devices have the nodes that the host has now. Waits at
/// most `lock_limit` for the container's lock. Returns whether the container was changed.
pub(in crate::live) fn replace_devices(
    record: &AttachmentRecord,
    followed: &[FollowedDevice<'_>],
    snapshot: &HostSnapshot,
    lock_limit: Duration,
    config: &Config,
) -> Result<bool, LiveError> {
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    let mut locked = LockedContainer::from_record(record, lock_limit, config)?;
    let LockedContainer {
        container,
        record: current,
        ..
    } = &mut locked;
    // `detach` may have ended the waiting since `record` was read.
    let has_arrivals = current.add_arrivals(&container.bundle, snapshot, config)?;
    // A device may have been detached since `record` was read, before the container was locked.
    let known: BTreeSet<DeviceRef> = locked
        .record
        .devices
        .iter()
        .map(AttachedDevice::device_ref)
        .collect();
    let followed: Vec<_> = followed
        .iter()
        .filter(|it| known.contains(&it.device.device_ref()))
        .collect();
    let renamed = locked.record.rename_devices(&find_new_ids(&followed));
    let mut present = Vec::new();
    let mut followed_refs = BTreeSet::new();
    let mut grants = Vec::new();
    for followed in followed {
        let before = followed.device.device_ref();
        let now = renamed.get(&before).unwrap_or(&before);
        let devices = &locked.record.devices;
        let Some(device) = devices.iter().find(|device| device.device_ref() == *now) else {
            continue;
        };
        followed_refs.insert(now.clone());
        if let Some(found) = &followed.present {
            // If the ids differ, another device of the record is this device, by another name.
            if found.id != device.device {
                continue;
            }
            let request = device.to_request_by_id(|path| snapshot.is_path_of_device(device, path));
            grants.push(device.to_grant(request));
        }
        present.push((device.clone(), followed.present.as_ref()));
    }
    // The files that `refresh` created have no users, and stay.
    let is_followed_device = |user: &StepUser| {
        user.device()
            .is_some_and(|device| followed_refs.contains(device))
    };
    let is_followed =
        |users: &[StepUser]| !users.is_empty() && users.iter().all(is_followed_device);

    let bundle = &mut locked.container.bundle;
    bundle.attached = grants;
    // The nodes that the engine made are of earlier numbers, or are replaced by this change.
    bundle.spec_devices.nodes.clear();
    let mut plan = planner::plan_attached(bundle, snapshot.followed_classes(), config)?;
    let class_nodes = ClassNodes::find(&locked.record, &plan, snapshot);
    plan.steps.retain(|step| {
        let is_node = matches!(
            step.action,
            Action::Allow { .. }
                | Action::Node { .. }
                | Action::MakeNode { .. }
                | Action::Link { .. }
        );
        let is_followed = step.users.iter().all(is_followed_device);
        is_followed && is_node || class_nodes.includes_step(step) || class_nodes.includes_mask(step)
    });

    let mut stale = locked.record.without_content();
    let planned_rules: Vec<_> = list_step_rules(&plan.steps).collect();
    let mut kept_rules = Vec::new();
    for rule in &locked.record.rules {
        let is_planned = planned_rules
            .iter()
            .any(|planned| planned.rule == rule.rule);
        let is_replaced = is_followed(&rule.users) || class_nodes.is_replaced_rule(rule);
        if is_replaced && !is_planned {
            stale.rules.push(rule.clone());
        } else {
            kept_rules.push(rule.rule);
        }
    }
    let is_planned = |file: &CreatedFile| plan.steps.iter().any(|step| file.is_created_by(step));
    let files = &locked.record.files;
    for (index, file) in files.iter().enumerate() {
        // A node that the engine made below the mount of a planned node stays as long as that mount.
        let mut same_path = files[index..].iter().filter(|it| it.path == file.path);
        let is_replaced = is_followed(&file.users) || class_nodes.has_path(&file.path);
        if file.is_node_or_link() && is_replaced && !same_path.any(is_planned) {
            stale.files.push(file.clone());
        }
    }

    let all_steps = plan.steps.clone();
    let mut all_rules = apply::list_rules(&plan);
    kept_rules.extend(&all_rules);
    locked.retain_missing_steps(&mut plan, &[], &stale, config)?;
    deadline.cancel();
    if plan.steps.is_empty() && stale.files.is_empty() && stale.rules.is_empty() {
        if !renamed.is_empty() || has_arrivals {
            locked.save_if_unchanged(&locked.record)?;
        }
        return Ok(false);
    }
    all_rules.extend(&kept_rules);
    let change = ContainerChange {
        stale: &stale,
        kept_rules: &kept_rules,
        plan: &plan,
        all_rules: &all_rules,
        all_steps: &all_steps,
        devices: Vec::new(),
        lasting_users: &BTreeSet::new(),
    };
    for warning in locked.change(change, config)? {
        log::warning(&format!("container {}: {warning}", record.id));
    }
    for (device, found) in present {
        let (id, class) = (device.label(), &device.class);
        log::report_action(&match found {
            Some(found) => {
                let nodes: Vec<String> = found.nodes.iter().map(ToString::to_string).collect();
                let nodes = nodes.join(" ");
                format!("container {}: {id} of {class} is {nodes}", record.id)
            }
            None => format!("container {}: {id} of {class} is gone", record.id),
        });
    }
    Ok(true)
}

/// Returns the new ids of devices whose ids have changed. A device that was requested by name has
/// another id when it is plugged in elsewhere. If it is unplugged and another device of the container
/// has its id, its record gets an id that is made of its name until it comes back.
fn find_new_ids(followed: &[&FollowedDevice<'_>]) -> BTreeMap<DeviceRef, DeviceId> {
    let is_id_of_other_device = |device: &AttachedDevice| {
        let mut present = followed
            .iter()
            .filter_map(|it| Some((it.device, it.present.as_ref()?)));
        present.any(|(other, found)| other.class == device.class && found.id == device.device)
    };
    let new_ids = followed.iter().filter_map(|followed| {
        let device = followed.device;
        let id = match (&followed.present, &device.name) {
            (Some(found), _) if found.id != device.device => found.id.clone(),
            (None, Some(name)) if is_id_of_other_device(device) => substitute_id(name)?,
            _ => return None,
        };
        Some((device.device_ref(), id))
    });
    new_ids.collect()
}

/// The nodes of a container that a followed class has for all its devices together. Like the node of
/// a single device, such a node may come back with another number.
struct ClassNodes {
    classes: BTreeSet<ClassName>,
    /// The paths of the nodes in the container.
    paths: BTreeSet<PathBuf>,
    /// The numbers that the nodes have on the host.
    numbers: BTreeSet<DeviceNumber>,
    /// The container's rules for numbers that such nodes had before.
    replaced_rules: Vec<RecordedRule>,
}

impl ClassNodes {
    fn find(record: &AttachmentRecord, plan: &InjectionPlan, snapshot: &HostSnapshot) -> Self {
        let classes = snapshot.list_followed_class_names(record).into_iter();
        let classes: BTreeSet<ClassName> = classes.cloned().collect();
        let is_class = |user: &StepUser| classes.iter().any(|class| user.is_class(class));
        let is_for_classes = |users: &[StepUser]| !users.is_empty() && users.iter().all(is_class);
        let files = record.files.iter();
        let files = files.filter(|file| is_for_classes(&file.users));
        let nodes: Vec<(&Path, u64)> = files
            .filter_map(|file| Some((&*file.path, file.device_number()?)))
            .collect();
        let (mut paths, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for step in plan.steps.iter().filter(|step| is_for_classes(&step.users)) {
            let (path, number) = match &step.action {
                Action::Node { mount, number, .. } => (&mount.path, *number),
                Action::MakeNode { path, number, .. } => (path, *number),
                _ => continue,
            };
            if nodes.iter().any(|(known, _)| known == path) {
                paths.insert(path.clone());
                numbers.insert(number);
            }
        }
        let at_paths = nodes.iter().filter(|(path, _)| paths.contains(*path));
        let earlier: BTreeSet<u64> = at_paths.map(|(_, number)| *number).collect();
        let is_replaced = |rule: &&RecordedRule| {
            let number = rule.rule.number;
            is_for_classes(&rule.users)
                && !numbers.contains(&number)
                && earlier.contains(&to_st_rdev(number))
        };
        let replaced_rules = record.rules.iter().filter(is_replaced).cloned().collect();
        ClassNodes {
            classes,
            paths,
            numbers,
            replaced_rules,
        }
    }

    /// Whether a step creates one of the nodes or allows access to it.
    fn includes_step(&self, step: &InjectionStep) -> bool {
        match &step.action {
            Action::Node { mount, .. } => self.has_path(&mount.path),
            Action::MakeNode { path, .. } => self.has_path(path),
            Action::Allow { rule, .. } => {
                let mut users = step.users.iter();
                self.numbers.contains(&rule.number)
                    && users.any(|it| self.classes.iter().any(|class| it.is_class(class)))
            }
            _ => false,
        }
    }

    /// Whether a step masks a list of devices, in which the followed ones change.
    fn includes_mask(&self, step: &InjectionStep) -> bool {
        match &step.action {
            Action::Mask { path, .. } => {
                let mut users = step.users.iter();
                has_only_links(path)
                    && users.any(|user| self.classes.iter().any(|class| user.is_class(class)))
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

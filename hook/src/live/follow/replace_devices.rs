//! Changing one container.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::slice;

use device_class::config::Config;
use device_class::device::{DeviceNumber, DeviceRule};
use injection_plan::plan::{Action, InjectionPlan, InjectionStep};

use super::host_snapshot::{Followed, HostSnapshot};
use crate::apply;
use crate::live::attach::ContainerChange;
use crate::live::attachment_record::{AttachedDevice, AttachmentRecord};
use crate::live::created_file::{CreatedFile, raw};
use crate::live::recorded_rule::{RecordedRule, parsed, rules_of_steps};
use crate::live::{LiveError, LockedContainer, lock};
use crate::log;
use crate::planner;
use crate::sys::deadline::{self, Deadline};

/// Changes a container such that it has the followed devices as the host has them. Returns
/// whether anything was to be changed.
pub(super) fn replace(
    record: &AttachmentRecord,
    followed: &[Followed<'_>],
    sight: &HostSnapshot,
    config: &Config,
) -> Result<bool, LiveError> {
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    let mut running = LockedContainer::of(record, lock::LITTLE_PATIENCE, config)?;
    // A device may have been detached since `record` was read: now nobody else changes it.
    let known: BTreeSet<String> = running
        .record
        .devices
        .iter()
        .map(AttachedDevice::key)
        .collect();
    let followed: Vec<Followed<'_>> = followed
        .iter()
        .filter(|(device, _)| known.contains(&device.key()))
        .cloned()
        .collect();
    // What the hook knows of the container's other rules is in the record.
    let mut keep = Vec::new();
    let is_followed = |why: &String| followed.iter().any(|(device, _)| device.key() == *why);
    // What a refresh made is for nobody: it lasts.
    let are_theirs = |why: &[String]| !why.is_empty() && why.iter().all(is_followed);
    let mut here = running.record.identity();
    let present = followed.iter().filter(|(_, nodes)| nodes.is_some());
    here.devices = present.map(|(device, _)| (*device).clone()).collect();
    running.container.bundle.attached = AttachmentRecord::grants(here.devices.iter());
    // Those that the engine made are gone by now, or will be.
    running.container.bundle.spec_devices.nodes.clear();
    let mut plan = planner::plan_attached(&running.container.bundle, sight.classes(), config)?;
    let class_nodes = ClassNodes::find(&running.record, &plan, sight);
    plan.steps.retain(|step| {
        let is_theirs = step.users.iter().all(is_followed);
        let is_node = matches!(
            step.action,
            Action::Allow { .. }
                | Action::Node { .. }
                | Action::MakeNode { .. }
                | Action::Link { .. }
        );
        is_theirs && is_node || class_nodes.has(step)
    });
    let mut stale = running.record.identity();
    let wanted: Vec<_> = rules_of_steps(&plan.steps).collect();
    for rule in &running.record.rules {
        let is_wanted = wanted.iter().any(|wanted| wanted.rule == rule.rule);
        if (are_theirs(&rule.why) || class_nodes.has_replaced(rule)) && !is_wanted {
            stale.rules.push(rule.clone());
        } else {
            keep.extend(parsed(slice::from_ref(rule)));
        }
    }
    let is_wanted = |made: &CreatedFile| plan.steps.iter().any(|step| made.is_of(step));
    let all_made = &running.record.made;
    for (at, made) in all_made.iter().enumerate() {
        // What the engine made below what is wanted goes with that.
        let mut above = all_made[at..].iter().filter(|it| it.path == made.path);
        let is_theirs = are_theirs(&made.why) || class_nodes.is_at(&made.path);
        if made.is_node_or_link() && is_theirs && !above.any(is_wanted) {
            stale.made.push(made.clone());
        }
    }
    let steps = plan.steps.clone();
    let mut all = apply::rules_of(&plan);
    keep.extend(&all);
    running.keep_missing(&mut plan, &[], &stale, config)?;
    deadline.cancel();
    if plan.steps.is_empty() && stale.made.is_empty() && stale.rules.is_empty() {
        return Ok(false);
    }
    all.extend(&keep);
    let change = ContainerChange {
        stale: &stale,
        keep: &keep,
        plan: &plan,
        all: &all,
        steps: &steps,
        devices: Vec::new(),
        lasting: &BTreeSet::new(),
    };
    for warning in running.change(change, config)? {
        log::warning(&format!("container {}: {warning}", record.id));
    }
    for (device, nodes) in followed {
        let (id, class) = (&device.device, &device.class);
        log::info(|| match nodes {
            Some(nodes) => format!("container {}: {id} of {class} is {nodes}", record.id),
            None => format!("container {}: {id} of {class} is gone", record.id),
        });
    }
    Ok(true)
}

/// The nodes of followed classes as such that the container has: those that the classes have for
/// all their devices together. Like a device's own node, such a node may come back with another
/// number.
struct ClassNodes {
    paths: BTreeSet<PathBuf>,
    /// The numbers of the nodes on the host.
    numbers: BTreeSet<DeviceNumber>,
    /// The rules of the container for such nodes whose number has changed.
    replaced: Vec<RecordedRule>,
    classes: BTreeSet<String>,
}

impl ClassNodes {
    fn find(record: &AttachmentRecord, plan: &InjectionPlan, sight: &HostSnapshot) -> Self {
        let classes = sight.followed_classes(record).into_iter();
        let classes: BTreeSet<String> = classes.map(str::to_owned).collect();
        let is_for_classes =
            |users: &[String]| !users.is_empty() && users.iter().all(|user| classes.contains(user));
        let made = record.made.iter().filter(|made| is_for_classes(&made.why));
        let made: Vec<&CreatedFile> = made.filter(|made| made.device_number().is_some()).collect();
        let (mut paths, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for step in plan.steps.iter().filter(|step| is_for_classes(&step.users)) {
            let (path, number) = match &step.action {
                Action::Node { mount, number, .. } => (&mount.path, *number),
                Action::MakeNode { path, number, .. } => (path, *number),
                _ => continue,
            };
            if made.iter().any(|made| made.path == *path) {
                paths.insert(path.clone());
                numbers.insert(number);
            }
        }
        let earlier = made.iter().filter(|made| paths.contains(&made.path));
        let earlier: BTreeSet<Option<u64>> = earlier.map(|made| made.device_number()).collect();
        let is_replaced = |rule: &&RecordedRule| {
            let number = DeviceRule::parse(&rule.rule).map(|rule| rule.number);
            is_for_classes(&rule.why)
                && number.is_some_and(|it| !numbers.contains(&it))
                && earlier.contains(&number.map(raw))
        };
        let replaced = record.rules.iter().filter(is_replaced).cloned().collect();
        ClassNodes {
            paths,
            numbers,
            replaced,
            classes,
        }
    }

    /// Whether a step is for one of the nodes.
    fn has(&self, step: &InjectionStep) -> bool {
        match &step.action {
            Action::Node { mount, .. } => self.is_at(&mount.path),
            Action::MakeNode { path, .. } => self.is_at(path),
            Action::Allow { rule, .. } => {
                let mut users = step.users.iter();
                self.numbers.contains(&rule.number) && users.any(|it| self.classes.contains(it))
            }
            _ => false,
        }
    }

    /// Whether a rule is for an earlier number of one of the nodes.
    fn has_replaced(&self, rule: &RecordedRule) -> bool {
        self.replaced.contains(rule)
    }

    fn is_at(&self, path: &Path) -> bool {
        self.paths.contains(path)
    }
}

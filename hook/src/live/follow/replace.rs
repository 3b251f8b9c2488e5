//! Changing one container.

use std::collections::BTreeSet;
use std::slice;

use device_class::config::Config;
use injection_plan::plan::Action;

use super::sight::{Followed, Sight};
use crate::apply;
use crate::live::attach::Change;
use crate::live::made::Made;
use crate::live::record::{Device, Record};
use crate::live::rule::{parsed, rules_of_steps};
use crate::live::{LiveError, Running, lock};
use crate::log;
use crate::planner;
use crate::sys::deadline::{self, Deadline};

/// Changes a container such that it has the followed devices as the host has them. Returns
/// whether anything was to be changed.
pub(super) fn replace(
    record: &Record,
    followed: &[Followed<'_>],
    sight: &Sight,
    config: &Config,
) -> Result<bool, LiveError> {
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    let mut running = Running::of(record, lock::LITTLE_PATIENCE, config)?;
    // A device may have been detached since `record` was read: now nobody else changes it.
    let known: BTreeSet<String> = running.record.devices.iter().map(Device::key).collect();
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
    running.container.bundle.attached = Record::grants(here.devices.iter());
    // Those that the engine made are gone by now, or will be.
    running.container.bundle.spec_devices.nodes.clear();
    let mut plan = planner::plan_attached(&running.container.bundle, sight.classes(), config)?;
    plan.steps.retain(|step| {
        let is_theirs = step.users.iter().all(is_followed);
        let is_node = matches!(
            step.action,
            Action::Allow { .. }
                | Action::Node { .. }
                | Action::MakeNode { .. }
                | Action::Link { .. }
        );
        is_theirs && is_node
    });
    let mut stale = running.record.identity();
    let wanted: Vec<_> = rules_of_steps(&plan.steps).collect();
    for rule in &running.record.rules {
        let is_wanted = wanted.iter().any(|wanted| wanted.rule == rule.rule);
        match are_theirs(&rule.why) && !is_wanted {
            true => stale.rules.push(rule.clone()),
            false => keep.extend(parsed(slice::from_ref(rule))),
        }
    }
    let is_wanted = |made: &Made| plan.steps.iter().any(|step| made.is_of(step));
    let all_made = &running.record.made;
    for (at, made) in all_made.iter().enumerate() {
        // What the engine made below what is wanted goes with that.
        let mut above = all_made[at..].iter().filter(|it| it.path == made.path);
        if made.is_node_or_link() && are_theirs(&made.why) && !above.any(is_wanted) {
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
    let change = Change {
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

//! Attaching: what a container that runs lacks of a plan is done, or nothing.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::device::DeviceRule;
use injection_plan::plan::{Action, InjectionPlan, InjectionStep};

use super::detach::take_back;
use super::made::Made;
use super::record::{Device, Record, Rule};
use super::{Found, LiveError, Running};
use crate::apply;
use crate::cgroup::{DeviceCgroup, SpecRules};
use crate::oci::{Attached, CdiGrant};
use crate::planner::{self, Caller};
use crate::sys::deadline::Stage;

/// Devices that are to be attached.
pub(crate) struct Attaching {
    running: Running,
    /// What the container lacks.
    pub(crate) plan: InjectionPlan,
    /// All that it shall have, for rules that must be made again.
    all: Vec<DeviceRule>,
    devices: Vec<Device>,
}

impl Attaching {
    /// Plans what a container that runs lacks for devices. Nothing is changed.
    pub(crate) fn plan(
        found: &Found,
        wanted: &[CdiGrant],
        forced: bool,
        config: &Config,
    ) -> Result<Self, LiveError> {
        let mut running = Running::open(found, config)?;
        Stage::Planning.begin();
        let known = running.record.attached();
        let asked = wanted.iter().map(|grant| Attached {
            grant: grant.clone(),
            forced,
        });
        let asked: Vec<Attached> = asked.collect();
        // With what it has: libraries and masks are for all its devices at once.
        running.bundle.attached = [known, asked.clone()].concat();
        let with_all = planner::plan_for(&running.bundle, &Caller::User, config);
        let mut plan = match with_all {
            Ok(plan) => plan,
            Err(error) => {
                running.bundle.attached = asked;
                let mut plan = planner::plan_for(&running.bundle, &Caller::Attach, config)?;
                plan.warnings.push(format!(
                    "the container's other devices are left as they are: {}",
                    crate::log::chain(&error)
                ));
                plan
            }
        };
        let of_command = running.bundle.attached.len() - wanted.len();
        let mut attached = Vec::new();
        plan.grants
            .retain(|grant| grant.asked_by.starts_with("attached "));
        plan.grants.drain(..of_command.min(plan.grants.len()));
        for grant in &plan.grants {
            attached.extend(grant.devices.iter().map(|device| Device {
                class: grant.class.clone(),
                device: device.clone(),
                asked: grant.asked_by.trim_start_matches("attached ").to_owned(),
                forced,
            }));
        }
        let all = apply::rules_of(&plan);
        running.keep_missing(&mut plan, &attached)?;
        Ok(Attaching {
            running,
            plan,
            all,
            devices: attached,
        })
    }

    /// The devices, by class.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&str, &str)> {
        self.devices
            .iter()
            .map(|device| (&*device.class, &*device.device))
    }
}

impl Running {
    /// Leaves of a plan only what the container lacks.
    fn keep_missing(&self, plan: &mut InjectionPlan, devices: &[Device]) -> Result<(), LiveError> {
        let denied = self.denied(&apply::rules_of(plan))?;
        let look = |path: &Path| {
            let found = self.namespace.look(path);
            found.map_err(|error| crate::log::chain(&error))
        };
        let lacks = |step: &InjectionStep| -> Result<bool, LiveError> {
            Ok(match &step.action {
                Action::Allow { rule, .. } => denied.contains(rule),
                action => apply::lacks(action, &look)
                    .map_err(LiveError::Look)?
                    .is_some(),
            })
        };
        let lacking = plan.steps.iter().map(lacks);
        let lacking = lacking.collect::<Result<Vec<bool>, _>>()?;
        let is_injected = |action: &Action| {
            matches!(
                action,
                Action::Library { .. } | Action::File(_) | Action::Loader { .. }
            )
        };
        let steps = plan.steps.iter().zip(&lacking);
        let (mut any, mut any_injected) = (false, false);
        for (step, lacks) in steps {
            any |= lacks;
            any_injected |= lacks & is_injected(&step.action);
        }
        let known: BTreeSet<&str> = self.record.devices.iter().map(|it| &*it.device).collect();
        let new = devices.iter().map(|device| device.device.as_str());
        let new: BTreeSet<&str> = new.filter(|device| !known.contains(device)).collect();
        let mut lacking = lacking.into_iter();
        plan.steps.retain(|step| {
            let lacks = lacking.next().unwrap_or(true);
            match &step.action {
                Action::Prepare(_) => any && new.contains(&*step.why),
                // Those that are there already are not covered again.
                Action::Mask { .. } => any,
                // One tmpfs has all libraries and files: a new one covers the old one.
                action if is_injected(action) => any_injected,
                _ => lacks,
            }
        });
        Ok(())
    }

    /// The rules that the container's cgroup denies.
    pub(super) fn denied(&self, rules: &[DeviceRule]) -> Result<Vec<DeviceRule>, LiveError> {
        match self.cgroup()? {
            Some(cgroup) => Ok(cgroup.denied(rules)?.rules),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn cgroup(&self) -> Result<Option<DeviceCgroup>, LiveError> {
        Ok(DeviceCgroup::of_member(&self.namespace.cgroups()?)?)
    }
}

/// Does what was planned, or nothing, and records it. Returns warnings.
pub(crate) fn attach(attaching: Attaching, config: &Config) -> Result<Vec<String>, LiveError> {
    let Attaching {
        running,
        plan,
        all,
        devices,
    } = attaching;
    if plan.steps.is_empty() {
        return Ok(Vec::new());
    }
    apply::check_masks(&plan, &running.namespace, &running.bundle, config)?;
    let ready = apply::open_sources(&plan, config, running.calls)?;
    let mut new = Record {
        made: Made::of(&ready, &running.namespace)?,
        devices,
        ..running.record.identity()
    };
    new.rules
        .extend(plan.steps.iter().filter_map(|step| match &step.action {
            Action::Allow { rule, .. } => Some(Rule {
                rule: rule.to_string(),
                why: step.why.split(", ").map(str::to_owned).collect(),
            }),
            _ => None,
        }));
    let mut record = running.record.clone();
    record.add(new.devices.clone(), new.rules.clone(), new.made.clone());
    // First, so that `detach` knows what is there even if this process is killed.
    running.records.save(&record)?;
    let done = running.in_child(|notes| {
        Stage::Rules.begin();
        if let Some(cgroup) = running.cgroup()? {
            let spec = SpecRules::of_container(&running.bundle.spec_devices.rules);
            notes.extend(cgroup.allow(&all, &spec)?.warnings());
        }
        Stage::Container.begin();
        let root = running.enter()?;
        let label = running.bundle.mount_label.as_deref();
        Ok(apply::attach(ready, &root, running.calls, label, notes)?)
    });
    let done = done.and_then(|notes| match running.namespace.started() {
        Ok(_) => Ok(notes),
        Err(_) => Err(LiveError::Ended),
    });
    if done.is_err() {
        let undone = take_back(&running, &new);
        if undone.is_ok() || matches!(done, Err(LiveError::Ended)) {
            running.records.save(&running.record)?;
        }
        if let Err(error) = undone
            && !matches!(done, Err(LiveError::Ended))
        {
            crate::log::warning(&format!(
                "a part of it is left in the container, and `boathook detach` will take it away: \
                 {}",
                crate::log::chain(&error)
            ));
        }
    }
    done
}

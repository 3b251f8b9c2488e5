//! Detaching: what attaching added is taken away, and nothing else.

use device_class::config::Config;
use device_class::device::DeviceRule;

use super::follow::{self, Became};
use super::open_by::{self, OpenBy};
use super::record::{Device, Record};
use super::rule::{Rule, parsed};
use super::{Found, LiveError, Running};
use crate::apply;
use crate::container::ContainerRoot;
use crate::oci::{Attached, CdiGrant};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};

/// What was taken away.
pub(crate) struct Detached {
    pub(crate) devices: Vec<Device>,
    pub(crate) warnings: Vec<String>,
    /// Processes that opened a device before, and can use it as long as they have it open.
    pub(crate) open_by: Vec<OpenBy>,
}

/// Takes devices away from a container that runs; without any named, all that were attached.
pub(crate) fn detach(
    found: &Found,
    named: &[CdiGrant],
    config: &Config,
) -> Result<Detached, LiveError> {
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    let mut running = Running::open(found, config)?;
    let is_named = |device: &Device, grant: &CdiGrant| {
        let mut names = grant.device.split(',');
        device.asked.is_user()
            && grant.class.as_str() == device.class
            && names.any(|name| [&*device.device, device.asked.devices(), "all"].contains(&name))
    };
    let recorded = running.record.devices.clone();
    let has = |grant: &CdiGrant| recorded.iter().any(|it| is_named(it, grant));
    let named: Vec<CdiGrant> = named
        .iter()
        .map(|grant| match has(grant) {
            true => grant.clone(),
            false => running.by_id(grant, config),
        })
        .collect();
    if let Some(unknown) = named.iter().find(|grant| !has(grant)) {
        let attached = running.record.devices.iter();
        let attached = attached.filter(|device| device.asked.is_user());
        let attached: Vec<String> = attached
            .map(|device| format!("{}={}", device.class, device.device))
            .collect();
        return Err(LiveError::NotAttached(format!(
            "{}={} is not attached to it; {}",
            unknown.class,
            unknown.device,
            match attached.is_empty() {
                true => "nothing is; a device that it was started with stays".to_owned(),
                false => format!("attached are {}", attached.join(", ")),
            }
        )));
    }
    let mut record = running.record.clone();
    let mut taken = record.take(|device| {
        device.asked.is_user() && named.is_empty()
            || named.iter().any(|grant| is_named(device, grant))
    });
    running.bundle.attached = record.attached();
    Stage::Planning.begin();
    let mut keep = Vec::new();
    if let Ok(mut plan) = planner::plan_for(&running.bundle, &Caller::Running, config) {
        // Its own requests may mean them today, such as `all`; it lacked them before.
        let is_taken = |user: &String| taken.devices.iter().any(|it| it.key() == *user);
        plan.steps
            .retain(|step| step.users.is_empty() || !step.users.iter().all(is_taken));
        keep = apply::rules_of(&plan);
        record.keep(&mut taken, &plan.steps);
    }
    keep.extend(rules(&record));
    deadline.cancel();
    let warnings = match take_back(&running, &taken, &keep, &record, config) {
        Ok(warnings) => warnings,
        Err(error) => {
            let mut left = running.record.clone();
            let allowed = running.allowed(&taken, &keep, &record, config);
            left.rules
                .retain(|rule| !taken.rules.contains(rule) || allowed.contains(rule));
            running.records.save(&left)?;
            return Err(error);
        }
    };
    running.records.save(&record)?;
    let rules = rules(&taken);
    let open_by = open_by::processes(&running.namespace.cgroups()?, &rules);
    drop(running);
    follow::tell_of(&taken, Became::Detached, config);
    Ok(Detached {
        devices: taken.devices,
        warnings,
        open_by,
    })
}

impl Running {
    /// The rules of a record that the cgroup still allows, after a change that failed. The
    /// others were revoked, and must not be recorded: [`follow`] gives back what an update of
    /// the container takes away.
    pub(super) fn allowed(
        &self,
        record: &Record,
        keep: &[DeviceRule],
        kept: &Record,
        config: &Config,
    ) -> Vec<Rule> {
        // A hidden program does not say: what is revoked again is so for certain.
        let is_hidden = matches!(self.is_hidden(config), Ok(true));
        let again = || self.in_child(|_| self.revoke(record, keep, kept, config).map(drop));
        if is_hidden && again().is_ok() {
            return Vec::new();
        }
        let denied = self.denied(&rules(record)).unwrap_or_default();
        let is_denied = |rule: &Rule| {
            let rule = DeviceRule::parse(&rule.rule);
            rule.is_some_and(|rule| denied.iter().any(|it| it.number == rule.number))
        };
        let rules = record.rules.iter().filter(|rule| !is_denied(rule));
        rules.cloned().collect()
    }

    fn revoke(
        &self,
        record: &Record,
        keep: &[DeviceRule],
        kept: &Record,
        config: &Config,
    ) -> Result<Vec<String>, LiveError> {
        match self.cgroup()? {
            Some(cgroup) if !record.rules.is_empty() => {
                let spec = self.spec(kept, config)?;
                Ok(cgroup.revoke(&rules(record), keep, &spec)?)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The same by ids, if this host has the devices: they may be named otherwise than they
    /// were attached.
    fn by_id(&mut self, grant: &CdiGrant, config: &Config) -> CdiGrant {
        self.bundle.attached = vec![Attached {
            grant: grant.clone(),
            forced: true,
        }];
        let plan = planner::plan_for(&self.bundle, &Caller::Attach, config);
        let grants = plan.map(|plan| plan.grants).unwrap_or_default();
        let attached = grants.into_iter().filter(|it| it.given_by.is_user());
        let ids: Vec<String> = attached.flat_map(|it| it.devices).collect();
        match ids.is_empty() {
            true => grant.clone(),
            false => CdiGrant {
                device: ids.join(","),
                ..grant.clone()
            },
        }
    }
}

/// Takes all of a record away, but for the rules of devices in `keep`, from a container that
/// keeps `kept`.
pub(super) fn take_back(
    running: &Running,
    record: &Record,
    keep: &[DeviceRule],
    kept: &Record,
    config: &Config,
) -> Result<Vec<String>, LiveError> {
    running.in_child(|notes| {
        Stage::Rules.begin();
        notes.extend(running.revoke(record, keep, kept, config)?);
        Stage::Container.begin();
        if record.made.is_empty() {
            return Ok(());
        }
        undo(record, &running.enter()?)
    })
}

/// Takes all of a record out of a container's root: as much as possible, and the first fault.
pub(super) fn undo(record: &Record, root: &ContainerRoot) -> Result<(), LiveError> {
    let undone = record.made.iter().rev().map(|made| made.undo(root));
    let faults: Vec<LiveError> = undone.filter_map(Result::err).collect();
    faults.into_iter().next().map_or(Ok(()), Err)
}

pub(super) fn rules(record: &Record) -> Vec<DeviceRule> {
    parsed(&record.rules)
}

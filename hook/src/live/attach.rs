//! Attaching: what a container that runs lacks of a plan is done, or nothing.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::device::DeviceRule;
use device_class::name::ClassName;
use injection_plan::plan::{Action, INJECTED, InjectionPlan, InjectionStep};

use super::attachment_record::{AttachedDevice, AttachmentRecord};
use super::created_file::CreatedFile;
use super::detach::{remove_in, rules, undo};
use super::follow::{self, DeviceChange};
use super::hidden_program;
use super::recorded_rule::{note_host_nodes, rules_of_steps};
use super::{ContainerLocation, LiveError, LockedContainer, in_child, try_twice};
use crate::apply;
use crate::cgroup::SpecRules;
use crate::oci::{Attached, CdiGrant};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};

/// Devices that are to be attached.
pub(crate) struct Attaching {
    running: LockedContainer,
    /// What the container lacks.
    pub(crate) plan: InjectionPlan,
    /// All that it shall have, for rules that must be made again.
    all: Vec<DeviceRule>,
    /// The steps for all of that, also those that it does not lack.
    steps: Vec<InjectionStep>,
    devices: Vec<AttachedDevice>,
}

impl Attaching {
    /// Plans what a container that runs lacks for devices. Nothing is changed.
    pub(crate) fn plan(
        found: &ContainerLocation,
        wanted: &[CdiGrant],
        forced: bool,
        config: &Config,
    ) -> Result<Self, LiveError> {
        let mut running = LockedContainer::open(found, config)?;
        Stage::Planning.begin();
        let known = running.record.attached();
        let asked = wanted.iter().map(|grant| Attached {
            grant: grant.clone(),
            forced,
        });
        let asked: Vec<Attached> = asked.collect();
        // With what it has: libraries and masks are for all its devices at once.
        running.container.bundle.attached = [known, asked.clone()].concat();
        let with_all = planner::plan_for(&running.container.bundle, &Caller::Running, config);
        let mut unplanned = None;
        let mut plan = match with_all {
            Ok(plan) => plan,
            Err(error) => {
                running.container.bundle.attached = asked;
                let mut plan =
                    planner::plan_for(&running.container.bundle, &Caller::Attach, config)?;
                plan.warnings.push(format!(
                    "the container's other devices are left as they are: {}",
                    crate::log::chain(&error)
                ));
                unplanned = Some(error);
                plan
            }
        };
        let before = running.container.bundle.attached.len() - wanted.len();
        // Those of a class are in this order, the classes in their own.
        let mut before: Vec<&ClassName> = running.container.bundle.attached[..before]
            .iter()
            .map(|known| &known.grant.class)
            .collect();
        plan.grants.retain(|grant| {
            let is_of = |class: &&ClassName| class.as_str() == grant.class;
            grant.given_by.is_user()
                && match before.iter().position(is_of) {
                    Some(at) => {
                        before.swap_remove(at);
                        false
                    }
                    None => true,
                }
        });
        let mut attached = Vec::new();
        for grant in &plan.grants {
            attached.extend(grant.devices.iter().map(|device| AttachedDevice {
                class: grant.class.clone(),
                device: device.clone(),
                asked: grant.given_by.clone(),
                forced,
            }));
        }
        if attached.is_empty() {
            let reasons = plan.warnings.iter();
            let reasons: Vec<String> = reasons.map(|it| format!(": {it}")).collect();
            return Err(LiveError::NoDevice(reasons.concat()));
        }
        // Its own requests may mean more today than it was given, such as `all`.
        let known = &running.record.devices;
        plan.steps.retain(|step| match &step.action {
            Action::Allow { .. }
            | Action::Node { .. }
            | Action::MakeNode { .. }
            | Action::Link { .. }
            | Action::Prepare(_) => {
                let mut all = known.iter().chain(&attached);
                all.any(|device| device.is_among(&step.users))
            }
            _ => true,
        });
        let all = apply::rules_of(&plan);
        let steps = plan.steps.clone();
        running.keep_missing(&mut plan, &attached, &AttachmentRecord::default(), config)?;
        // A new directory would cover that of the other devices.
        if let Some(error) = unplanned
            && plan.steps.iter().any(|step| is_injected(&step.action))
            && running
                .container
                .namespace
                .look(Path::new(INJECTED))?
                .is_some()
        {
            return Err(error.into());
        }
        Ok(Attaching {
            running,
            plan,
            all,
            steps,
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

impl LockedContainer {
    /// Leaves of a plan only what the container lacks once `stale` is taken away.
    pub(super) fn keep_missing(
        &self,
        plan: &mut InjectionPlan,
        devices: &[AttachedDevice],
        stale: &AttachmentRecord,
        config: &Config,
    ) -> Result<(), LiveError> {
        let host_root = &config.host_root;
        let rules = apply::rules_of(plan);
        let is_hidden =
            !rules.is_empty() && (self.is_hidden(config)? || self.hides_exceptions()?);
        let denied = self.denied(&rules)?;
        let look = |path: &Path| {
            let found = self.container.namespace.look(path);
            found.map_err(|error| crate::log::chain(&error))
        };
        let is_new = |user: &String| devices.iter().any(|device| device.class == *user);
        let lacks = |step: &InjectionStep| -> Result<bool, LiveError> {
            Ok(match &step.action {
                Action::Allow { rule, in_spec, .. } => {
                    denied.contains(rule) || is_hidden && self.is_unknown(rule, *in_spec)
                }
                Action::Link { path, .. } if stale.made.iter().any(|it| it.path == *path) => true,
                // The image has a file of the same name.
                Action::File(mount)
                    if step.users.iter().any(is_new)
                        && apply::is_other_file(&mount.source, &mount.path, host_root, &look)
                            == Some(true) =>
                {
                    true
                }
                action => apply::lacks(action, &look)
                    .map_err(LiveError::Look)?
                    .is_some(),
            })
        };
        let lacking = plan.steps.iter().map(lacks);
        let lacking = lacking.collect::<Result<Vec<bool>, _>>()?;
        let steps = plan.steps.iter().zip(&lacking);
        let (mut any, mut any_injected) = (false, false);
        for (step, lacks) in steps {
            any |= lacks;
            any_injected |= lacks & is_injected(&step.action);
        }
        let known: BTreeSet<String> = self
            .record
            .devices
            .iter()
            .map(AttachedDevice::key)
            .collect();
        let new = devices.iter().map(AttachedDevice::key);
        let new: BTreeSet<String> = new.filter(|device| !known.contains(device)).collect();
        let mut lacking = lacking.into_iter();
        plan.steps.retain(|step| {
            let lacks = lacking.next().unwrap_or(true);
            match &step.action {
                Action::Prepare(_) => any && step.users.iter().any(|user| new.contains(user)),
                // Those that are there already are not covered again.
                Action::Mask { .. } => any,
                // One tmpfs has all libraries and files: a new one covers the old one.
                action if is_injected(action) => any_injected,
                _ => lacks,
            }
        });
        Ok(())
    }

    /// The rules that the container's cgroup denies. On cgroup v2 the user of a rootless engine
    /// cannot read them, and the engine sets none.
    pub(super) fn denied(&self, rules: &[DeviceRule]) -> Result<Vec<DeviceRule>, LiveError> {
        match self
            .record
            .find_cgroup()?
            .map(|cgroup| cgroup.denied(rules))
        {
            None => Ok(Vec::new()),
            Some(Err(error)) if error.lacks_privileges() => Ok(Vec::new()),
            Some(denied) => Ok(denied?.rules),
        }
    }
}

/// Whether it is a part of the hook's own directory in containers: one tmpfs has all of it.
pub(super) fn is_injected(action: &Action) -> bool {
    matches!(
        action,
        Action::Library { .. } | Action::File(_) | Action::Loader { .. }
    )
}

/// Does what was planned, or nothing, and records it. Returns warnings.
pub(crate) fn attach(attaching: Attaching, config: &Config) -> Result<Vec<String>, LiveError> {
    let Attaching {
        running,
        plan,
        all,
        steps,
        devices,
    } = attaching;
    if plan.steps.is_empty() {
        // What it has may be there for another device alone: it stays as long as one needs it.
        let mut shared = running.record.clone();
        shared.add(devices, Vec::new(), Vec::new());
        shared.share(&steps);
        let known = &running.record;
        if (&shared.rules, &shared.made) != (&known.rules, &known.made) {
            running.records.save(&shared)?;
        }
        return Ok(Vec::new());
    }
    let nothing = running.record.identity();
    let is_new = |device: &&AttachedDevice| {
        let mut known = running.record.devices.iter();
        !known.any(|known| known.key() == device.key())
    };
    let attached = AttachmentRecord {
        devices: devices.iter().filter(is_new).cloned().collect(),
        ..running.record.identity()
    };
    let change = ContainerChange {
        stale: &nothing,
        keep: &[],
        plan: &plan,
        all: &all,
        steps: &steps,
        devices,
        lasting: &BTreeSet::new(),
    };
    let warnings = running.change(change, config)?;
    drop(running);
    if plan.grants.iter().any(|grant| grant.follow) {
        follow::tell_of(&attached, DeviceChange::Attached, config);
    }
    Ok(warnings)
}

/// What is done with a container in one go.
pub(super) struct ContainerChange<'a> {
    /// What is taken away first, but for the rules of devices in `keep`.
    pub(super) stale: &'a AttachmentRecord,
    pub(super) keep: &'a [DeviceRule],
    pub(super) plan: &'a InjectionPlan,
    /// All rules that it has after that, for programs that must be made again.
    pub(super) all: &'a [DeviceRule],
    /// The steps for all that it has after that.
    pub(super) steps: &'a [InjectionStep],
    /// Devices that are to be recorded.
    pub(super) devices: Vec<AttachedDevice>,
    /// Classes and devices for which something is made that stays when attached devices are
    /// detached.
    pub(super) lasting: &'a BTreeSet<String>,
}

impl LockedContainer {
    /// Changes the container, and the record of it. If that fails, what was added is taken
    /// away again.
    pub(super) fn change(
        &self,
        change: ContainerChange<'_>,
        config: &Config,
    ) -> Result<Vec<String>, LiveError> {
        let ContainerChange {
            stale,
            keep,
            plan,
            all,
            steps,
            devices,
            lasting,
        } = change;
        let namespace = &self.container.namespace;
        apply::check_masks(plan, namespace, &self.container.bundle, config)?;
        let calls = self.container.calls.for_running()?;
        let ready = apply::open_sources(plan, config, calls)?;
        let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
        let mut new = AttachmentRecord {
            made: CreatedFile::of(&ready, namespace, &stale.made)?,
            devices,
            ..self.record.identity()
        };
        deadline.cancel();
        for made in &mut new.made {
            if made.why.iter().any(|why| lasting.contains(why)) {
                made.why.clear();
            }
        }
        new.rules.extend(rules_of_steps(&plan.steps));
        for rule in &mut new.rules {
            rule.beside_spec = !new.devices.is_empty();
        }
        note_host_nodes(&mut new.rules, steps, &config.host_root);
        let mut left = self.record.clone();
        let has_rules = !all.is_empty() || !stale.rules.is_empty();
        let is_hidden = has_rules && self.is_hidden(config)?;
        // The kernel may hide programs only later.
        left.was_given_nothing |= has_rules
            && !left.whole
            && (is_hidden || hidden_program::was_given_nothing(&self.container.bundle, config));
        left.withdraw(&stale.rules);
        left.made.retain(|made| !stale.made.contains(made));
        let mut done = left.clone();
        done.add(new.devices.clone(), new.rules.clone(), new.made.clone());
        done.share(steps);
        let mut both = done.clone();
        both.add(Vec::new(), stale.rules.clone(), stale.made.clone());
        let spec = &self.container.bundle.spec_devices.rules;
        let spec = match is_hidden {
            true => left.regenerated(spec),
            false => SpecRules::of_container(spec),
        };
        let cgroup = match has_rules {
            true => self.record.find_cgroup()?,
            false => None,
        };
        // First, so that it is known what is there even if this process is killed.
        self.records.save(&both)?;
        let changed = in_child(|notes| {
            Stage::Rules.begin();
            if let Some(cgroup) = &cgroup {
                notes.extend(cgroup.exchange(&rules(stale), keep, all, &spec)?);
            }
            Stage::Container.begin();
            if stale.made.is_empty() && ready.is_empty() {
                return Ok(());
            }
            let root = self.container.enter()?;
            undo(stale, &root)?;
            let label = self.container.bundle.mount_label.as_deref();
            Ok(apply::attach(ready, &root, calls, label, notes)?)
        });
        let changed = changed.and_then(|notes| {
            if self.record.has_ended() {
                return Err(LiveError::Ended);
            }
            self.records.save(&done)?;
            Ok(notes)
        });
        if changed.is_ok() {
            return changed;
        }
        if self.record.has_ended() {
            // What it had is gone with it.
            self.records.save(&self.record.identity())?;
            return Err(LiveError::Ended);
        }
        self.roll_back(&new, stale, left);
        changed
    }

    /// Takes back what a change that failed has added, of a container that keeps `left`.
    fn roll_back(
        &self,
        new: &AttachmentRecord,
        stale: &AttachmentRecord,
        mut left: AttachmentRecord,
    ) {
        // By this process, which the container cannot keep waiting.
        let revoked = try_twice(|| self.record.revoke(&new.rules, &left));
        let removed = match new.made.is_empty() {
            true => Ok(()),
            false => try_twice(|| remove_in(&self.container, new)),
        };
        let allowed = self.record.still_allowed(&stale.rules, &left);
        left.add(Vec::new(), allowed, stale.made.clone());
        let failed = revoked.is_err() || removed.is_err();
        if revoked.is_err() {
            left.add(new.devices.clone(), new.rules.clone(), Vec::new());
        }
        if removed.is_err() {
            left.add(Vec::new(), Vec::new(), new.made.clone());
        }
        let saved = try_twice(|| Ok(self.records.save(&left)?));
        for error in [revoked.map(drop), removed, saved]
            .into_iter()
            .filter_map(Result::err)
        {
            crate::log::warning(&format!(
                "container {}: {}",
                self.record.id,
                crate::log::chain(&error)
            ));
        }
        if failed {
            crate::log::warning(
                "a part of it is left in the container, and `boathook detach` will take it away",
            );
        }
    }
}

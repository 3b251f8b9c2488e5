//! One change of a container and its record: all of it is done, or nothing.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::device::DeviceRule;
use device_class::name::DeviceRef;
use injection_plan::plan::{Action, InjectionPlan, InjectionStep, StepUser};

use super::predicted_files::predict_files;
use crate::apply;
use crate::cgroup::SpecRules;
use crate::container::ContainerRoot;
use crate::live::LiveError;
use crate::live::container::{
    LockedContainer, OpenContainer, hidden_program, run_in_child, try_twice,
};
use crate::live::record::{
    AttachedDevice, AttachmentRecord, add_host_nodes, list_step_rules, to_device_rules,
};
use crate::sys::deadline::{self, Deadline, Stage};

/// A change of a container: the files and rules that are removed from it, and those that are added.
pub(in crate::live) struct ContainerChange<'a> {
    /// The rules and files that are removed first.
    pub(in crate::live) stale: &'a AttachmentRecord,
    /// The rules that stay, although `stale` may have rules for the same devices.
    pub(in crate::live) kept_rules: &'a [DeviceRule],
    /// The steps that the container lacks.
    pub(in crate::live) plan: &'a InjectionPlan,
    /// All rules that the container has after the change. A device program that must be generated
    /// again gets them.
    pub(in crate::live) all_rules: &'a [DeviceRule],
    /// The steps for all that the container has after the change.
    pub(in crate::live) all_steps: &'a [InjectionStep],
    /// The devices that are added to the record.
    pub(in crate::live) devices: Vec<AttachedDevice>,
    /// The users whose new files stay when attached devices are detached.
    pub(in crate::live) lasting_users: &'a BTreeSet<StepUser>,
}

impl LockedContainer {
    /// Changes the container and its record. If this fails, the added rules and files are removed
    /// again. Returns warnings.
    ///
    /// A record with all old and new content is written before the container is changed, so that
    /// nothing is unrecorded if this process is killed.
    pub(in crate::live) fn change(
        &self,
        change: ContainerChange<'_>,
        config: &Config,
    ) -> Result<Vec<String>, LiveError> {
        let ContainerChange {
            stale,
            kept_rules,
            plan,
            all_rules,
            all_steps,
            devices,
            lasting_users,
        } = change;
        let namespace = &self.container.namespace;
        apply::check_masks(plan, namespace, &self.container.bundle, config)?;
        let calls = self.container.calls.for_running()?;
        let ready = apply::open_sources(plan, config, calls)?;
        let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
        let mut new = AttachmentRecord {
            files: predict_files(&ready, namespace, &stale.files)?,
            devices,
            ..self.record.without_content()
        };
        deadline.cancel();
        for file in &mut new.files {
            if file.users.iter().any(|user| lasting_users.contains(user)) {
                file.users.clear();
            }
        }
        new.rules.extend(list_step_rules(&plan.steps));
        for rule in &mut new.rules {
            rule.beside_spec = !new.devices.is_empty();
        }
        add_host_nodes(&mut new.rules, all_steps, &config.host_root);

        let mut kept = self.record.clone();
        let has_rules = !all_rules.is_empty() || !stale.rules.is_empty();
        let is_hidden = has_rules && self.has_hidden_program(config)?;
        // This is recorded now, because it cannot be determined later, when the kernel may hide the
        // program.
        kept.was_given_nothing |= has_rules
            && !kept.has_all_rules
            && (is_hidden
                || hidden_program::requests_nothing_at_start(&self.container.bundle, config));
        kept.remove_revoked(&stale.rules);
        kept.files.retain(|file| !stale.files.contains(file));
        let mut after = kept.clone();
        after.add_content(new.devices.clone(), new.rules.clone(), new.files.clone());
        after.add_users(all_steps);
        let mut union = after.clone();
        union.add_content(Vec::new(), stale.rules.clone(), stale.files.clone());

        let spec = &self.container.bundle.spec_devices.rules;
        let spec = if is_hidden {
            kept.to_spec_rules(spec)
        } else {
            SpecRules::from_spec(spec)
        };
        let cgroup = if has_rules {
            self.record.find_cgroup()?
        } else {
            None
        };
        self.save_if_unchanged(&union)?;
        let changed = run_in_child(|warnings| {
            Stage::Rules.begin();
            if let Some(cgroup) = &cgroup {
                let revoked = to_device_rules(&stale.rules);
                warnings.extend(cgroup.exchange_rules(&revoked, kept_rules, all_rules, &spec)?);
            }
            Stage::Container.begin();
            if stale.files.is_empty() && ready.is_empty() {
                return Ok(());
            }
            let root = self.container.enter()?;
            remove_files(stale, &root)?;
            apply::remove_outdated_masks(&ready, &root)?;
            let label = self.container.bundle.mount_label.as_deref();
            Ok(apply::attach(ready, &root, calls, label, warnings)?)
        });
        let changed = changed.and_then(|warnings| {
            if self.record.has_ended() {
                return Err(LiveError::ContainerEnded);
            }
            self.record_file.save_merged(&union, &mut after)?;
            Ok(warnings)
        });
        if changed.is_ok() {
            return changed;
        }
        if self.record.has_ended() {
            // The container's rules and files have ended with it.
            self.record_file.save(&self.record.without_content())?;
            return Err(LiveError::ContainerEnded);
        }
        self.roll_back(&new, stale, kept, &union);
        changed
    }

    /// Removes the rules and files that a failed change has added. `kept` is the record without the
    /// stale and the new content, and `saved` is the one that this process wrote before the change.
    /// This process revokes the rules itself, because the container can delay a child process.
    fn roll_back(
        &self,
        new: &AttachmentRecord,
        stale: &AttachmentRecord,
        mut kept: AttachmentRecord,
        saved: &AttachmentRecord,
    ) {
        let revoked = try_twice(|| self.record.revoke(&new.rules, &kept));
        let removed = if new.files.is_empty() {
            Ok(())
        } else {
            try_twice(|| remove_files_in_child(&self.container, new))
        };
        let allowed = self.record.find_still_allowed(&stale.rules, &kept);
        kept.add_content(Vec::new(), allowed, stale.files.clone());
        let is_incomplete = revoked.is_err() || removed.is_err();
        if revoked.is_err() {
            kept.add_content(new.devices.clone(), new.rules.clone(), Vec::new());
        }
        if removed.is_err() {
            kept.add_content(Vec::new(), Vec::new(), new.files.clone());
        }
        // The removal of files may take long. `detach` may have revoked rules meanwhile, because it
        // does not wait for the lock for ever.
        let recorded = try_twice(|| Ok(self.record_file.save_merged(saved, &mut kept)?));
        let errors = [revoked.map(drop), removed, recorded];
        for error in errors.into_iter().filter_map(Result::err) {
            crate::log::warning(&format!(
                "container {}: {}",
                self.record.id,
                crate::log::chain(&error)
            ));
        }
        if is_incomplete {
            crate::log::warning(
                "a part of it is left in the container, and `boathook detach` will take it away",
            );
        }
    }

    /// Removes the steps from a plan that the container does not need, because it has their result
    /// already, after the removal of `stale`. `devices` are the devices that are being attached.
    pub(in crate::live) fn retain_missing_steps(
        &self,
        plan: &mut InjectionPlan,
        devices: &[AttachedDevice],
        stale: &AttachmentRecord,
        config: &Config,
    ) -> Result<(), LiveError> {
        let rules = apply::list_rules(plan);
        let may_hide_rules = !rules.is_empty()
            && (self.has_hidden_program(config)? || self.has_hidden_exceptions()?);
        let denied = self.find_denied(&rules)?;
        let open_file = |path: &Path| {
            let found = self.container.namespace.open_file(path);
            found.map_err(|error| crate::log::chain(&error))
        };
        let is_new_class = |user: &StepUser| devices.iter().any(|it| user.is_class(&it.class));
        let lacks_step = |step: &InjectionStep| -> Result<bool, LiveError> {
            Ok(match &step.action {
                Action::Allow { rule, in_spec, .. } => {
                    denied.contains(rule) || may_hide_rules && self.is_unrecorded(rule, *in_spec)
                }
                Action::Link { path, .. } if stale.files.iter().any(|it| it.path == *path) => true,
                // The image has another file at the path.
                Action::File(mount)
                    if step.users.iter().any(is_new_class)
                        && apply::is_other_file(
                            &mount.source,
                            &mount.path,
                            &config.host_root,
                            &open_file,
                        ) == Some(true) =>
                {
                    true
                }
                action => apply::find_missing_file(action, &open_file)
                    .map_err(LiveError::Inspection)?
                    .is_some(),
            })
        };
        let lacking = plan
            .steps
            .iter()
            .map(lacks_step)
            .collect::<Result<Vec<bool>, _>>()?;
        let (mut lacks_any, mut lacks_injected) = (false, false);
        for (step, lacks) in plan.steps.iter().zip(&lacking) {
            lacks_any |= lacks;
            lacks_injected |= lacks & is_injected(&step.action);
        }
        let known: BTreeSet<DeviceRef> = self
            .record
            .devices
            .iter()
            .map(AttachedDevice::device_ref)
            .collect();
        let new = devices.iter().map(AttachedDevice::device_ref);
        let new: BTreeSet<DeviceRef> = new.filter(|device| !known.contains(device)).collect();
        let is_new = |user: &StepUser| user.device().is_some_and(|device| new.contains(device));
        let mut lacking = lacking.into_iter();
        plan.steps.retain(|step| {
            let lacks = lacking.next().unwrap_or(true);
            match &step.action {
                Action::Prepare(_) => lacks_any && step.users.iter().any(is_new),
                // All masks are part of any change. One that is there already is not covered again.
                Action::Mask { .. } => lacks_any || !stale.files.is_empty(),
                // One tmpfs has all libraries and files: a new one covers the old one.
                action if is_injected(action) => lacks_injected,
                _ => lacks,
            }
        });
        Ok(())
    }

    /// Returns the rules that the container's cgroup denies. On cgroup v2 a user of a rootless
    /// engine cannot read them, and the engine sets none, so that none counts as denied.
    fn find_denied(&self, rules: &[DeviceRule]) -> Result<Vec<DeviceRule>, LiveError> {
        let Some(cgroup) = self.record.find_cgroup()? else {
            return Ok(Vec::new());
        };
        match cgroup.find_denied_rules(rules) {
            Err(error) if error.lacks_privileges() => Ok(Vec::new()),
            denied => Ok(denied?.rules),
        }
    }
}

/// Whether an action adds a file to the hook's own directory in containers, which is one tmpfs.
pub(in crate::live) fn is_injected(action: &Action) -> bool {
    matches!(
        action,
        Action::Library { .. } | Action::File(_) | Action::Loader { .. }
    )
}

/// Removes the files of `removed` from the root of a container. A child process with a time limit
/// does this, because a file system of the container may not answer.
pub(in crate::live) fn remove_container_files(
    container: &AttachmentRecord,
    removed: &AttachmentRecord,
) -> Result<(), LiveError> {
    if removed.files.is_empty() {
        return Ok(());
    }
    let done =
        run_in_child(|_| enter_and_remove(&OpenContainer::open(&container.location())?, removed));
    done.map(drop)
}

fn remove_files_in_child(
    container: &OpenContainer,
    removed: &AttachmentRecord,
) -> Result<(), LiveError> {
    run_in_child(|_| enter_and_remove(container, removed)).map(drop)
}

fn enter_and_remove(
    container: &OpenContainer,
    removed: &AttachmentRecord,
) -> Result<(), LiveError> {
    Stage::Container.begin();
    let root = container.enter()?;
    try_twice(|| remove_files(removed, &root))
}

/// Removes the files of a record from a container's root, the last one first. Removes as many as
/// possible, and returns the first error.
fn remove_files(record: &AttachmentRecord, root: &ContainerRoot) -> Result<(), LiveError> {
    let mut done = Ok(());
    for file in record.files.iter().rev() {
        done = done.and(file.remove(root));
    }
    done
}

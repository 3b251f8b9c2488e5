//! Changes a container and its attachment record. If a step of the change fails, the whole change
//! is undone.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::device::DeviceRule;
use device_class::discover::is_sysfs_link_directory;
use device_class::name::DeviceRef;
use hook::apply;
use hook::attachment::{
    AttachmentRecord, ContainerDevice, add_host_nodes, list_step_rules, to_device_rules,
};
use hook::cgroup::SpecRules;
use hook::container::{self, ContainerNamespace};
use hook::sys::deadline::{self, Deadline, Stage};
use injection_plan::plan::{Action, InjectionPlan, InjectionStep, StepOwner};

use super::predicted_files::list_planned_files;
use crate::live::ContainerChangeError;
use crate::live::container::{
    FileRemover, LockedContainer, MaskLinks, RunningContainer, hidden_program, run_in_child,
    try_twice,
};

/// A change of a running container. It removes files and device rules first, and then adds others.
pub(crate) struct ContainerChange<'a> {
    /// A record whose rules and files are removed from the container first.
    pub(crate) stale_content: &'a AttachmentRecord,
    /// The rules that are not revoked, even if `stale_content` has rules for their devices.
    pub(crate) preserved_rules: &'a [DeviceRule],
    /// The plan without the steps whose node, file or rule the container already has.
    pub(crate) plan: &'a InjectionPlan,
    /// All rules that the container has after the change. If the kernel hides the container's
    /// device program, the program is generated again from these rules.
    pub(crate) final_rules: &'a [DeviceRule],
    /// The injection steps for all devices and classes that the container has after the change.
    /// Their owners are recorded as additional owners of the rules and files that the container
    /// already has.
    pub(crate) final_steps: &'a [InjectionStep],
    /// The devices that are added to the container's record.
    pub(crate) devices: Vec<ContainerDevice>,
    /// The devices and classes whose new files stay in the container when devices are detached.
    pub(crate) permanent_step_owners: &'a BTreeSet<StepOwner>,
}

impl LockedContainer {
    /// Changes the container and its record. If this fails, removes the added rules and files
    /// again. Returns warnings.
    ///
    /// Before the container is changed, the record is written with all old and all new content. So
    /// the record is complete even if this process is killed.
    pub(crate) fn apply_change(
        &self,
        change: ContainerChange<'_>,
        config: &Config,
    ) -> Result<Vec<String>, ContainerChangeError> {
        let ContainerChange {
            stale_content,
            preserved_rules,
            plan,
            final_rules,
            final_steps,
            devices,
            permanent_step_owners,
        } = change;
        let namespace = &self.container.namespace;
        apply::check_masks(plan, namespace, &self.container.bundle, config)?;
        let syscall_support = self
            .container
            .syscall_support
            .prepare_for_running_container()?;
        let label = self.container.bundle.mount_label.as_deref();
        let opened_steps = apply::prepare_and_open_sources(plan, config, syscall_support, label)?;
        let deadline =
            Deadline::start(deadline::DEADLINE_SECONDS).map_err(ContainerChangeError::Fork)?;
        let previous_masks = read_masks(plan, namespace)?;
        let mut new_content = AttachmentRecord {
            files: list_planned_files(&opened_steps, namespace, &stale_content.files)?,
            devices,
            ..self.record.without_attachments()
        };
        deadline.cancel();
        for file in &mut new_content.files {
            if file
                .owners
                .iter()
                .any(|owner| permanent_step_owners.contains(owner))
            {
                file.owners.clear();
            }
        }
        new_content.rules.extend(list_step_rules(&plan.steps));
        for rule in &mut new_content.rules {
            rule.keeps_spec_access = !new_content.devices.is_empty();
        }
        add_host_nodes(&mut new_content.rules, final_steps, &config.host_root);

        let mut remaining_record = self.record.clone();
        let has_rules = !final_rules.is_empty() || !stale_content.rules.is_empty();
        let is_program_hidden = has_rules && self.is_device_program_hidden(config)?;
        // The record must say whether the container was started without an injection, because all
        // its rules are then known. This is determined now, because the kernel may hide the device
        // program later.
        remaining_record.had_no_injection_at_start |= has_rules
            && !remaining_record.has_all_rules
            && (is_program_hidden
                || hidden_program::has_no_start_requests(&self.container.bundle, config));
        remaining_record.remove_revoked_rules(&stale_content.rules);
        remaining_record
            .files
            .retain(|file| !stale_content.files.contains(file));
        let mut final_record = remaining_record.clone();
        final_record.add_attachments(
            new_content.devices.clone(),
            new_content.rules.clone(),
            new_content.files.clone(),
        );
        final_record.add_step_owners(final_steps);
        let mut union_record = final_record.clone();
        union_record.add_attachments(
            Vec::new(),
            stale_content.rules.clone(),
            stale_content.files.clone(),
        );

        let spec_rules = &self.container.bundle.spec_devices.rules;
        let spec_rules = if is_program_hidden {
            remaining_record.to_spec_rules(spec_rules)
        } else {
            SpecRules::from_spec(spec_rules)
        };
        let cgroup = if has_rules {
            self.record.find_cgroup()?
        } else {
            None
        };
        self.save_if_unchanged(&union_record)?;
        let result = run_in_child(|warnings| {
            Stage::SettingRules.begin();
            if let Some(cgroup) = &cgroup {
                let stale_rules = to_device_rules(&stale_content.rules);
                warnings.extend(cgroup.exchange_rules(
                    &stale_rules,
                    preserved_rules,
                    final_rules,
                    &spec_rules,
                )?);
            }
            Stage::MountingFiles.begin();
            if stale_content.files.is_empty() && opened_steps.is_empty() {
                return Ok(());
            }
            let root = self.container.enter()?;
            let remover = FileRemover {
                root: &root,
                remaining_masks: &MaskLinks::new(),
                syscall_support,
                mount_label: label,
            };
            remove_files(stale_content, &remover)?;
            apply::remove_outdated_masks(&opened_steps, &root)?;
            Ok(apply::apply_steps(
                opened_steps,
                &root,
                syscall_support,
                label,
                warnings,
            )?)
        });
        let result = result.and_then(|warnings| {
            if self.record.has_ended() {
                return Err(ContainerChangeError::ContainerEnded);
            }
            self.record_file
                .save_without_detached_devices(&union_record, &mut final_record)?;
            Ok(warnings)
        });
        if result.is_ok() {
            return result;
        }
        if self.record.has_ended() {
            // The container has ended, so its rules and files no longer exist. There is nothing to
            // undo.
            self.record_file.save(&self.record.without_attachments())?;
            return Err(ContainerChangeError::ContainerEnded);
        }
        self.roll_back(
            &new_content,
            stale_content,
            remaining_record,
            &union_record,
            &previous_masks,
        );
        result
    }

    /// Removes the rules and files that a failed change has added. The rules are revoked without a
    /// child process, because the container could delay a child process.
    ///
    /// `remaining_record` contains neither the stale nor the new content. `saved_record` is the
    /// record that was written before the change. The container had the masks `previous_masks`
    /// before the change, and has them again afterwards.
    fn roll_back(
        &self,
        new_content: &AttachmentRecord,
        stale_content: &AttachmentRecord,
        mut remaining_record: AttachmentRecord,
        saved_record: &AttachmentRecord,
        previous_masks: &MaskLinks,
    ) {
        let revocation = try_twice(|| {
            self.record
                .revoke_rules(&new_content.rules, &remaining_record)
        });
        let removal = if new_content.files.is_empty() {
            Ok(())
        } else {
            try_twice(|| remove_files_in_child(&self.container, new_content, previous_masks))
        };
        let allowed_rules = self
            .record
            .find_allowed_rules(&stale_content.rules, &remaining_record);
        remaining_record.add_attachments(Vec::new(), allowed_rules, stale_content.files.clone());
        let is_incomplete = revocation.is_err() || removal.is_err();
        if revocation.is_err() {
            remaining_record.add_attachments(
                new_content.devices.clone(),
                new_content.rules.clone(),
                Vec::new(),
            );
        }
        if removal.is_err() {
            remaining_record.add_attachments(Vec::new(), Vec::new(), new_content.files.clone());
        }
        // `detach` may have revoked rules without the lock while the files were removed. So its
        // changes are merged into the record.
        let save_result = try_twice(|| {
            Ok(self
                .record_file
                .save_without_detached_devices(saved_record, &mut remaining_record)?)
        });
        let errors = [
            revocation.map(drop).map_err(ContainerChangeError::from),
            removal,
            save_result,
        ];
        for error in errors.into_iter().filter_map(Result::err) {
            hook::log::warning(&format!(
                "container {}: {}",
                self.record.id,
                hook::log::format_error_chain(&error)
            ));
        }
        if is_incomplete {
            hook::log::warning(
                "a part of it is left in the container, and `boathook detach` will take it away",
            );
        }
    }

    /// Removes from a plan each step whose node, file or rule the container already has. `devices`
    /// are the devices that are being attached.
    ///
    /// The rules and files of `stale_content` are treated as missing, because they will be removed
    /// first.
    pub(crate) fn retain_missing_steps(
        &self,
        plan: &mut InjectionPlan,
        devices: &[ContainerDevice],
        stale_content: &AttachmentRecord,
        config: &Config,
    ) -> Result<(), ContainerChangeError> {
        let rules = apply::list_planned_rules(plan);
        let may_hide_rules = !rules.is_empty()
            && (self.is_device_program_hidden(config)? || self.has_hidden_exceptions()?);
        let denied_rules = self.find_denied_rules(&rules)?;
        let open_file = |path: &Path| match self.container.namespace.open_file(path) {
            Err(error) if error.has_non_directory_component() => Ok(None),
            result => result.map_err(|error| hook::log::format_error_chain(&error)),
        };
        let is_new_class =
            |owner: &StepOwner| devices.iter().any(|device| owner.is_class(&device.class));
        let is_step_missing = |step: &InjectionStep| -> Result<bool, ContainerChangeError> {
            Ok(match &step.action {
                Action::Allow {
                    rule, is_in_spec, ..
                } => {
                    denied_rules.contains(rule)
                        || may_hide_rules && self.lacks_rule(rule, *is_in_spec)
                }
                Action::Link { path, .. }
                    if stale_content.files.iter().any(|file| file.path == *path) =>
                {
                    true
                }
                // The container's image has another file at this path. The file of the class must
                // replace it.
                Action::File(mount)
                    if step.owners.iter().any(is_new_class)
                        && apply::differs_from_host_file(
                            &mount.source,
                            &mount.path,
                            &config.host_root,
                            &open_file,
                        ) == Some(true) =>
                {
                    true
                }
                action @ Action::Mask { .. } => {
                    let mut files = self.record.files.iter();
                    let was_mounted = files.any(|file| file.is_created_by(step));
                    apply::has_outdated_links(action, &self.container.namespace, was_mounted)?
                }
                action => apply::find_missing_file(action, &open_file)
                    .map_err(ContainerChangeError::Inspection)?
                    .is_some(),
            })
        };
        let missing_flags = plan
            .steps
            .iter()
            .map(is_step_missing)
            .collect::<Result<Vec<bool>, _>>()?;
        let (mut is_any_step_missing, mut is_injected_file_missing) = (false, false);
        for (step, is_missing) in plan.steps.iter().zip(&missing_flags) {
            is_any_step_missing |= is_missing;
            is_injected_file_missing |= is_missing & is_in_injected_dir(&step.action);
        }
        let recorded_refs: BTreeSet<DeviceRef> = self
            .record
            .devices
            .iter()
            .map(ContainerDevice::device_ref)
            .collect();
        let new_refs = devices.iter().map(ContainerDevice::device_ref);
        let new_refs: BTreeSet<DeviceRef> = new_refs
            .filter(|device| !recorded_refs.contains(device))
            .collect();
        let is_new = |owner: &StepOwner| {
            owner
                .device()
                .is_some_and(|device| new_refs.contains(device))
        };
        let mut missing_flags = missing_flags.into_iter();
        plan.steps.retain(|step| {
            let is_missing = missing_flags.next().unwrap_or(true);
            match &step.action {
                Action::Prepare(_) => is_any_step_missing && step.owners.iter().any(is_new),
                // If any step is missing, the plan keeps all steps that hide files (masks). A mask
                // that is already mounted is not mounted again.
                Action::Mask { .. } => is_any_step_missing || !stale_content.files.is_empty(),
                // All libraries and files are in one tmpfs. A new tmpfs hides the previous one, so
                // the new tmpfs must contain all of them.
                action if is_in_injected_dir(action) => is_injected_file_missing,
                _ => is_missing,
            }
        });
        Ok(())
    }

    /// Returns those of `rules` that the container's cgroup denies.
    ///
    /// The user of a rootless engine may not be allowed to read the device programs of cgroup v2.
    /// Then the result is empty, because a rootless engine sets no device program.
    fn find_denied_rules(
        &self,
        rules: &[DeviceRule],
    ) -> Result<Vec<DeviceRule>, ContainerChangeError> {
        let Some(cgroup) = self.record.find_cgroup()? else {
            return Ok(Vec::new());
        };
        match cgroup.find_denied_rules(rules) {
            Err(error) if error.lacks_privileges() => Ok(Vec::new()),
            denied_rules => Ok(denied_rules?.rules),
        }
    }
}

/// Reports whether an action adds a file to the tmpfs of injected files, which is mounted at
/// /usr/lib/boathook in the container.
pub(crate) fn is_in_injected_dir(action: &Action) -> bool {
    matches!(
        action,
        Action::Library { .. } | Action::File(_) | Action::Loader { .. }
    )
}

/// Removes the files that `removed_content` lists from the root of a container. A child process
/// with a time limit does this, because a file system in the container may hang.
pub(super) fn remove_container_files(
    container: &AttachmentRecord,
    removed_content: &AttachmentRecord,
) -> Result<(), ContainerChangeError> {
    if removed_content.files.is_empty() {
        return Ok(());
    }
    let result = run_in_child(|_| {
        let container = RunningContainer::open(&container.into())?;
        enter_and_remove_files(&container, removed_content, &MaskLinks::new())
    });
    result.map(drop)
}

fn remove_files_in_child(
    container: &RunningContainer,
    removed_content: &AttachmentRecord,
    remaining_masks: &MaskLinks,
) -> Result<(), ContainerChangeError> {
    run_in_child(|_| enter_and_remove_files(container, removed_content, remaining_masks)).map(drop)
}

fn enter_and_remove_files(
    container: &RunningContainer,
    removed_content: &AttachmentRecord,
    remaining_masks: &MaskLinks,
) -> Result<(), ContainerChangeError> {
    container.enter_to_remove_files(remaining_masks, |remover| {
        try_twice(|| remove_files(removed_content, remover))
    })
}

impl RunningContainer {
    /// Moves this process into the container's mount namespace, and calls `work` with a
    /// [`FileRemover`] for the masks `remaining_masks`.
    pub(super) fn enter_to_remove_files(
        &self,
        remaining_masks: &MaskLinks,
        work: impl FnOnce(&FileRemover<'_>) -> Result<(), ContainerChangeError>,
    ) -> Result<(), ContainerChangeError> {
        Stage::MountingFiles.begin();
        let syscall_support = self.syscall_support.prepare_for_running_container()?;
        let root = self.enter()?;
        work(&FileRemover {
            root: &root,
            remaining_masks,
            syscall_support,
            mount_label: self.bundle.mount_label.as_deref(),
        })
    }
}

/// Removes the files of a record from a container's root. The file that was created last is removed
/// first. Continues after an error, and returns the first error.
pub(super) fn remove_files(
    record: &AttachmentRecord,
    remover: &FileRemover<'_>,
) -> Result<(), ContainerChangeError> {
    let mut result = Ok(());
    for file in record.files.iter().rev() {
        result = result.and(remover.remove(file));
    }
    result
}

/// Returns the links of the masks that the container has now and that the plan may replace. Leaves
/// out masks with other contents than links, which cannot be made again.
fn read_masks(
    plan: &InjectionPlan,
    namespace: &ContainerNamespace,
) -> Result<MaskLinks, container::Error> {
    let mut masks = MaskLinks::new();
    for step in &plan.steps {
        if let Action::Mask { path, .. } = &step.action
            && is_sysfs_link_directory(path)
            && let Some(contents) = apply::read_mask(path, namespace)?
            && contents.other_paths.is_empty()
        {
            masks.insert(path.clone(), contents.links);
        }
    }
    Ok(masks)
}

//! `boathook refresh`: replaces the driver's files in a running container after the driver was
//! updated on the host. Programs that the container starts after that use the new files. Programs
//! that are already running keep the files that they have open. Devices and device rules are not
//! changed.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use hook::apply::{self, FileOpener};
use hook::planner::{self, Caller};
use hook::sys::deadline::Stage;
use injection_plan::plan::{Action, InjectionPlan, StepOwner};
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::live::ContainerChangeError;
use crate::live::container::{ContainerLocation, LockedContainer};
use crate::live::reconcile::{ContainerChange, is_in_injected_dir};

/// The plan for replacing files in a container. The container stays locked as long as this value
/// exists.
pub(crate) struct PlannedRefresh {
    locked_container: LockedContainer,
    /// The steps for files that are outdated or missing in the container. If a library or a file in
    /// the tmpfs of injected files is outdated, the plan contains all steps of this tmpfs.
    pub plan: InjectionPlan,
    /// The devices and the classes with which the container was started.
    initial_owners: BTreeSet<StepOwner>,
}

impl PlannedRefresh {
    /// Plans which files of the container are replaced, because the host has other files now.
    /// Nothing is changed yet.
    pub(crate) fn plan(
        location: &ContainerLocation,
        config: &Config,
    ) -> Result<Self, ContainerChangeError> {
        let mut locked_container = LockedContainer::open(location, config)?;
        Stage::Planning.begin();
        let bundle = &mut locked_container.container.bundle;
        bundle.attach_requests = locked_container.record.list_attach_requests();
        let mut plan =
            planner::plan_container_injection(bundle, &Caller::RunningContainerChange, config)?;
        let open_file = |path: &Path| match locked_container.container.namespace.open_file(path) {
            Err(error) if error.has_non_directory_component() => Ok(None),
            result => result.map_err(|error| hook::log::format_error_chain(&error)),
        };
        let is_outdated = |action: &Action| {
            apply::is_outdated(action, &config.host_root, &open_file) == Some(true)
        };
        let is_missing = |action: &Action| {
            let missing_file = apply::find_missing_file(action, &open_file)
                .map_err(ContainerChangeError::Inspection)?;
            Ok::<bool, ContainerChangeError>(missing_file.is_some())
        };
        // The path of a directory may contain the driver's version. So a missing directory is
        // treated as outdated.
        let mut replacements = Vec::with_capacity(plan.steps.len());
        let mut replaces_injected_files = false;
        for step in &plan.steps {
            let is_in_injected_dir = is_in_injected_dir(&step.action);
            let is_replaced = (is_in_injected_dir || matches!(step.action, Action::Directory(_)))
                && (is_outdated(&step.action) || is_missing(&step.action)?);
            replaces_injected_files |= is_in_injected_dir && is_replaced;
            replacements.push(is_replaced);
        }
        let mut replacements = replacements.into_iter();
        let mut read_only_paths = Vec::new();
        plan.steps.retain(|step| {
            let is_replaced = replacements.next().unwrap_or(false);
            match &step.action {
                action if is_in_injected_dir(action) => replaces_injected_files,
                Action::Directory(mount)
                    if is_replaced && is_missing_in_read_only_fs(&mount.path, &open_file) =>
                {
                    read_only_paths.push(mount.path.display().to_string());
                    false
                }
                _ => is_replaced,
            }
        });
        if !read_only_paths.is_empty() {
            plan.warnings.push(format!(
                "{} cannot be made, because the container's file system is read-only: start the \
                 container again",
                read_only_paths.join(", ")
            ));
        }
        let mut initial_owners = BTreeSet::new();
        for grant in plan
            .grants
            .iter()
            .filter(|grant| !grant.grant_origin.is_user())
        {
            initial_owners.extend(grant.device_refs().map(StepOwner::Device));
            initial_owners.insert(StepOwner::Class(grant.class.clone()));
        }
        Ok(PlannedRefresh {
            initial_owners,
            locked_container,
            plan,
        })
    }
}

/// Reports whether `path` does not exist in the container and cannot be created there. It cannot be
/// created if the nearest existing parent directory is on a read-only file system.
fn is_missing_in_read_only_fs(path: &Path, open_file: FileOpener<'_>) -> bool {
    if !matches!(open_file(path), Ok(None)) {
        return false;
    }
    let nearest_file = path.ancestors().find_map(|parent| open_file(parent).ok()?);
    let statistics = nearest_file.and_then(|handle| fstatvfs(handle.into_fd()).ok());
    statistics.is_some_and(|statistics| statistics.flags().contains(FsFlags::ST_RDONLY))
}

/// Replaces the planned files in the container and records them. Undoes the change if it fails.
/// Returns warnings.
pub(crate) fn refresh(
    planned_refresh: PlannedRefresh,
    config: &Config,
) -> Result<Vec<String>, ContainerChangeError> {
    let PlannedRefresh {
        locked_container,
        plan,
        initial_owners,
    } = planned_refresh;
    if plan.steps.is_empty() {
        return Ok(Vec::new());
    }
    let empty_record = locked_container.record.without_attachments();
    let change = ContainerChange {
        stale_content: &empty_record,
        preserved_rules: &[],
        plan: &plan,
        final_rules: &[],
        final_steps: &plan.steps,
        devices: Vec::new(),
        permanent_step_owners: &initial_owners,
    };
    locked_container.apply_change(change, config)
}

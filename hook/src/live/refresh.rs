//! `boathook refresh`: replaces the driver's files in a container that runs after the host's driver
//! was updated. Programs that are started in the container after that use the new files. Running
//! programs keep the files that they have open. Devices and device rules are not changed.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use injection_plan::plan::{Action, InjectionPlan, StepUser};
use nix::sys::statvfs::{FsFlags, fstatvfs};

use crate::apply::{self, OpenFile};
use crate::live::LiveError;
use crate::live::container::{ContainerLocation, LockedContainer};
use crate::live::reconcile::{ContainerChange, is_injected};
use crate::planner::{self, Caller};
use crate::sys::deadline::Stage;

/// The plan to replace files in a container, which this process has locked.
pub(crate) struct PlannedRefresh {
    container: LockedContainer,
    /// The steps for files that are outdated or missing in the container. All libraries and files are
    /// in one tmpfs. If one of them is outdated, the plan has the steps for all.
    pub(crate) plan: InjectionPlan,
    /// The devices and the classes that the container was started with.
    start_users: BTreeSet<StepUser>,
}

impl PlannedRefresh {
    /// Plans the replacement of the files that the host has updated. Nothing is changed.
    pub(crate) fn plan(location: &ContainerLocation, config: &Config) -> Result<Self, LiveError> {
        let mut locked = LockedContainer::open(location, config)?;
        Stage::Planning.begin();
        let bundle = &mut locked.container.bundle;
        bundle.attached = locked.record.attached_grants();
        let mut plan = planner::plan_for(bundle, &Caller::ChangeRunning, config)?;
        let open_file = |path: &Path| {
            let found = locked.container.namespace.open_file(path);
            found.map_err(|error| crate::log::chain(&error))
        };
        let is_outdated = |action: &Action| {
            apply::is_outdated(action, &config.host_root, &open_file) == Some(true)
        };
        let is_missing = |action: &Action| {
            let missing =
                apply::find_missing_file(action, &open_file).map_err(LiveError::Inspection)?;
            Ok::<bool, LiveError>(missing.is_some())
        };
        // A directory of another version of the driver has another path, and is missing.
        let mut replaced = Vec::with_capacity(plan.steps.len());
        let mut replaces_injected = false;
        for step in &plan.steps {
            let is_injected = is_injected(&step.action);
            let is_replaced = (is_injected || matches!(step.action, Action::Directory(_)))
                && (is_outdated(&step.action) || is_missing(&step.action)?);
            replaces_injected |= is_injected && is_replaced;
            replaced.push(is_replaced);
        }
        let mut replaced = replaced.into_iter();
        let mut not_made = Vec::new();
        plan.steps.retain(|step| {
            let is_replaced = replaced.next().unwrap_or(false);
            match &step.action {
                action if is_injected(action) => replaces_injected,
                Action::Directory(mount)
                    if is_replaced && is_on_read_only(&mount.path, &open_file) =>
                {
                    not_made.push(mount.path.display().to_string());
                    false
                }
                _ => is_replaced,
            }
        });
        if !not_made.is_empty() {
            plan.warnings.push(format!(
                "{} cannot be made, because the container's file system is read-only: start the \
                 container again",
                not_made.join(", ")
            ));
        }
        let mut start_users = BTreeSet::new();
        for grant in plan.grants.iter().filter(|it| !it.given_by.is_user()) {
            start_users.extend(grant.device_refs().map(StepUser::Device));
            start_users.insert(StepUser::Class(grant.class.clone()));
        }
        Ok(PlannedRefresh {
            start_users,
            container: locked,
            plan,
        })
    }
}

/// Returns whether `path` is missing in the container and its nearest directory there is on a
/// read-only file system.
fn is_on_read_only(path: &Path, open_file: OpenFile<'_>) -> bool {
    if !matches!(open_file(path), Ok(None)) {
        return false;
    }
    let nearest = path.ancestors().find_map(|above| open_file(above).ok()?);
    let flags = nearest.and_then(|handle| fstatvfs(handle.into_fd()).ok());
    flags.is_some_and(|found| found.flags().contains(FsFlags::ST_RDONLY))
}

/// Replaces the files and records this. If this fails, the container is as before. Returns warnings.
pub(crate) fn refresh(planned: PlannedRefresh, config: &Config) -> Result<Vec<String>, LiveError> {
    let PlannedRefresh {
        container,
        plan,
        start_users,
    } = planned;
    if plan.steps.is_empty() {
        return Ok(Vec::new());
    }
    let empty_record = container.record.without_content();
    let change = ContainerChange {
        stale: &empty_record,
        kept_rules: &[],
        plan: &plan,
        all_rules: &[],
        all_steps: &plan.steps,
        devices: Vec::new(),
        lasting_users: &start_users,
    };
    container.change(change, config)
}

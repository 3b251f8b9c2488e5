//! `boathook refresh`: replaces the driver's files in a container that runs after the host's driver
//! was updated. Programs that are started in the container from then on use the new files.
//! Programs that run keep the files that they have open.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use injection_plan::plan::{Action, InjectionPlan, StepUser};

use crate::apply;
use crate::live::LiveError;
use crate::live::container::{ContainerLocation, LockedContainer};
use crate::live::reconcile::{ContainerChange, is_injected};
use crate::planner::{self, Caller};
use crate::sys::deadline::Stage;

/// Files that are to be replaced in a container, which this process has locked.
pub(crate) struct Refreshing {
    container: LockedContainer,
    /// The steps for files that are outdated or missing in the container. Libraries and files are
    /// in one directory, so that one of them that is outdated brings all steps for it.
    pub(crate) plan: InjectionPlan,
    /// The devices and the classes that the container was started with.
    start_users: BTreeSet<StepUser>,
}

impl Refreshing {
    /// Plans the replacement of the files that the host has updated. Changes nothing.
    pub(crate) fn plan(location: &ContainerLocation, config: &Config) -> Result<Self, LiveError> {
        let mut locked = LockedContainer::open(location, config)?;
        Stage::Planning.begin();
        let bundle = &mut locked.container.bundle;
        bundle.attached = locked.record.attached_grants();
        let mut plan = planner::plan_for(bundle, &Caller::ChangeRunning, config)?;
        let look = |path: &Path| {
            let found = locked.container.namespace.open_file(path);
            found.map_err(|error| crate::log::chain(&error))
        };
        let is_outdated =
            |action: &Action| apply::is_outdated(action, &config.host_root, &look) == Some(true);
        let is_missing = |action: &Action| {
            let missing = apply::lacks(action, &look).map_err(LiveError::Look)?;
            Ok::<bool, LiveError>(missing.is_some())
        };
        let mut replaces_injected = false;
        for step in plan.steps.iter().filter(|step| is_injected(&step.action)) {
            replaces_injected |= is_outdated(&step.action) || is_missing(&step.action)?;
        }
        plan.steps.retain(|step| match &step.action {
            action if is_injected(action) => replaces_injected,
            action => matches!(action, Action::Directory(_)) && is_outdated(action),
        });
        let mut start_users = BTreeSet::new();
        for grant in plan.grants.iter().filter(|it| !it.given_by.is_user()) {
            start_users.extend(grant.device_refs().map(StepUser::Device));
            start_users.insert(StepUser::Class(grant.class.clone()));
        }
        Ok(Refreshing {
            start_users,
            container: locked,
            plan,
        })
    }
}

/// Replaces the files and records it, or changes nothing. Returns warnings.
pub(crate) fn refresh(refreshing: Refreshing, config: &Config) -> Result<Vec<String>, LiveError> {
    let Refreshing {
        container,
        plan,
        start_users,
    } = refreshing;
    if plan.steps.is_empty() {
        return Ok(Vec::new());
    }
    let nothing = container.record.without_content();
    let change = ContainerChange {
        stale: &nothing,
        keep: &[],
        plan: &plan,
        all_rules: &[],
        all_steps: &plan.steps,
        devices: Vec::new(),
        lasting_users: &start_users,
    };
    container.change(change, config)
}

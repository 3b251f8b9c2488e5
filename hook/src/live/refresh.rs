//! Refreshing: after an update of a driver a container that runs gets the host's files of today,
//! for programs that are started in it from now on. Those that run keep what they have open.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use injection_plan::plan::{Action, Grant, InjectionPlan, device_key};

use super::attach::{ContainerChange, is_injected};
use super::{ContainerLocation, LiveError, LockedContainer};
use crate::apply;
use crate::planner::{self, Caller};
use crate::sys::deadline::Stage;

/// Files that are to be exchanged.
pub(crate) struct Refreshing {
    running: LockedContainer,
    /// What the container has as it was; with a library all that is in the same directory.
    pub(crate) plan: InjectionPlan,
    /// The classes and devices that the container was started with.
    given: BTreeSet<String>,
}

impl Refreshing {
    /// Plans the exchange of the files that the host has replaced since. Nothing is changed.
    pub(crate) fn plan(found: &ContainerLocation, config: &Config) -> Result<Self, LiveError> {
        let mut running = LockedContainer::open(found, config)?;
        Stage::Planning.begin();
        running.container.bundle.attached = running.record.attached();
        let mut plan =
            planner::plan_for(&running.container.bundle, &Caller::Running, config)?;
        let look = |path: &Path| {
            let found = running.container.namespace.look(path);
            found.map_err(|error| crate::log::chain(&error))
        };
        let is_old =
            |action: &Action| apply::is_outdated(action, &config.host_root, &look) == Some(true);
        let is_lost = |action: &Action| {
            let lost = apply::lacks(action, &look).map_err(LiveError::Look)?;
            Ok::<bool, LiveError>(lost.is_some())
        };
        let mut any_injected = false;
        for step in plan.steps.iter().filter(|step| is_injected(&step.action)) {
            any_injected |= is_old(&step.action) || is_lost(&step.action)?;
        }
        plan.steps.retain(|step| match &step.action {
            action if is_injected(action) => any_injected,
            action => matches!(action, Action::Directory(_)) && is_old(action),
        });
        let is_attached = |grant: &&Grant| grant.given_by.is_user();
        let given = plan.grants.iter().filter(|grant| !is_attached(grant));
        let devices = |it: &Grant| {
            it.devices
                .iter()
                .map(|one| device_key(&it.class, one))
                .collect()
        };
        let given = given.flat_map(|it| [devices(it), vec![it.class.clone()]].concat());
        Ok(Refreshing {
            given: given.collect(),
            running,
            plan,
        })
    }
}

/// Exchanges the files, or nothing, and records it. Returns warnings.
pub(crate) fn refresh(refreshing: Refreshing, config: &Config) -> Result<Vec<String>, LiveError> {
    let Refreshing {
        running,
        plan,
        given,
    } = refreshing;
    if plan.steps.is_empty() {
        return Ok(Vec::new());
    }
    let nothing = running.record.identity();
    let change = ContainerChange {
        stale: &nothing,
        keep: &[],
        plan: &plan,
        all: &[],
        steps: &plan.steps,
        devices: Vec::new(),
        lasting: &given,
    };
    running.change(change, config)
}

//! Telling the container's cgroup.

use device_class::plan::{Action, Granted, InjectionPlan};

use super::ApplyError;
use crate::cgroup::{DeviceCgroup, DeviceRule, SpecRules};

/// Lets the container's cgroup use the plan's devices. Gives back what was
/// done otherwise than one would expect.
pub(super) fn allow(
    plan: &InjectionPlan,
    pid: i32,
    granted: &Granted,
) -> Result<Vec<String>, ApplyError> {
    let rules = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Allow { rule } => Some(DeviceRule::try_from(rule)),
        _ => None,
    });
    let rules: Vec<DeviceRule> = rules.collect::<Result<_, _>>()?;
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let Some(cgroup) = DeviceCgroup::of(pid)? else {
        return Ok(vec![
            "this host has no device cgroup, so no device rule was set".into(),
        ]);
    };
    let grant = cgroup.grant(&rules, &SpecRules::of_container(&granted.rules))?;
    let mut notes = Vec::new();
    for unit in &grant.units {
        if let Err(error) = unit {
            notes.push(format!(
                "{error}: {}; the devices are lost when systemd reloads",
                error.source
            ));
        }
    }
    if grant.levels.lacks_permission() || grant.levels.in_doubt() {
        notes.push(grant.levels.to_string().replace('\n', "; "));
    }
    Ok(notes)
}

//! Adds the device rules of a plan to the container's cgroup.

use injection_plan::plan::{Action, InjectionPlan, SpecDevices};

use super::ApplyError;
use crate::cgroup::{DeviceCgroup, DeviceRule, SpecRules};
use crate::container::ContainerNamespace;

/// Allows the devices of the plan in the container's cgroup. Returns warnings for the log.
pub(super) fn allow(
    plan: &InjectionPlan,
    container: &ContainerNamespace,
    spec: &SpecDevices,
) -> Result<Vec<String>, ApplyError> {
    let rules = rules_of(plan);
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let Some(cgroup) = DeviceCgroup::of_member(&container.cgroups()?)? else {
        return Ok(vec![
            "this host has no device cgroup, so no device rule was set".into(),
        ]);
    };
    let report = cgroup.allow(&rules, &SpecRules::of_container(&spec.rules))?;
    Ok(report.warnings())
}

pub(crate) fn rules_of(plan: &InjectionPlan) -> Vec<DeviceRule> {
    let rules = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Allow { rule, .. } => Some(*rule),
        _ => None,
    });
    rules.collect()
}

//! Adds the device rules of an injection plan to the container's cgroup, and denies access to
//! outdated device numbers.

use injection_plan::plan::{Action, InjectionPlan};

use super::ApplyError;
use super::stale_nodes::StaleNode;
use crate::cgroup::{DeviceCgroup, DeviceRule, SpecRules};
use crate::container::ContainerNamespace;
use crate::oci::Bundle;

/// Allows the devices of the plan in the container's cgroup. If the engine has created nodes with
/// outdated numbers of these devices, denies these numbers, because other devices may have them
/// now. Returns warnings for the log.
pub(super) fn allow_devices(
    plan: &InjectionPlan,
    container_namespace: &ContainerNamespace,
    bundle: &Bundle,
) -> Result<Vec<String>, ApplyError> {
    let rules = list_planned_rules(plan);
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let Some(cgroup) = DeviceCgroup::from_membership(&container_namespace.read_cgroup_file()?)?
    else {
        return Ok(vec![
            "this host has no device cgroup, so no device rule was set".into(),
        ]);
    };
    let spec_rules = SpecRules::from_spec(&bundle.spec_devices.rules);
    let stale_nodes = StaleNode::find_all(plan, bundle);
    if stale_nodes.is_empty() {
        return Ok(cgroup.allow(&rules, &spec_rules)?.warnings());
    }
    let mut warnings: Vec<String> = stale_nodes
        .iter()
        .map(|stale_node| {
            let (number, path) = (stale_node.node.number, stale_node.node.path.display());
            format!(
                "the engine made {path} as {number}, which is not the device's number any more: \
                 its CDI specification is out of date"
            )
        })
        .collect();
    let stale_rules: Vec<DeviceRule> = stale_nodes
        .into_iter()
        .flat_map(|stale_node| stale_node.rules)
        .collect();
    let spec_rules = spec_rules.with_denied_rules(&stale_rules);
    warnings.extend(cgroup.exchange_rules(&stale_rules, &[], &rules, &spec_rules)?);
    Ok(warnings)
}

/// Returns the device rules that a plan adds to the container's cgroup, such as `c 10:183 rw`.
pub fn list_planned_rules(plan: &InjectionPlan) -> Vec<DeviceRule> {
    let rules = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Allow { rule, .. } => Some(*rule),
        _ => None,
    });
    rules.collect()
}

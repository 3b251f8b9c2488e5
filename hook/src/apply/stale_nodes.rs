//! Finds device nodes that the engine made for a device that has another number now. This happens if
//! the engine's CDI specification, or its copy of one, is older than the device's number. Another
//! device may have the earlier number now.

use injection_plan::plan::{Action, InjectionPlan, InjectionStep, SpecNode, StepUser};

use crate::cgroup::DeviceRule;
use crate::oci::Bundle;

/// A node of the specification that is at the path of a planned node and has another number.
pub(crate) struct StaleNode<'a> {
    pub(crate) node: &'a SpecNode,
    /// The rules of the specification for the node alone.
    pub(crate) rules: Vec<DeviceRule>,
    /// The step that makes the planned node.
    pub(crate) step: &'a InjectionStep,
}

impl<'a> StaleNode<'a> {
    /// Finds the stale nodes of devices that a CDI specification or the wrapper runtime granted. A
    /// node that the container's user requested from the engine is not stale.
    pub(crate) fn find_all(plan: &'a InjectionPlan, bundle: &'a Bundle) -> Vec<Self> {
        let spec = &bundle.spec_devices;
        let mut found = Vec::new();
        for step in &plan.steps {
            let (path, number) = match &step.action {
                Action::Node { mount, number, .. } => (&mount.path, *number),
                Action::MakeNode { path, number, .. } => (path, *number),
                _ => continue,
            };
            let at_path = spec.nodes.iter().filter(|node| node.path == *path);
            for node in at_path.filter(|node| node.number != number) {
                if !is_granted_by_cdi(step, plan, bundle) {
                    continue;
                }
                // A node with this number at another path may be the user's.
                let mut same_number = spec.nodes.iter().filter(|it| it.number == node.number);
                let is_only = same_number.all(|it| it.path == node.path);
                let rules = is_only.then(|| spec.rules_of(node.number));
                found.push(StaleNode {
                    node,
                    rules: rules.into_iter().flatten().collect(),
                    step,
                });
            }
        }
        found
    }
}

/// Whether a step is for a device that a CDI specification or the wrapper runtime granted.
pub(crate) fn is_granted_by_cdi(
    step: &InjectionStep,
    plan: &InjectionPlan,
    bundle: &Bundle,
) -> bool {
    plan.grants.iter().any(|grant| {
        let is_granted = |user: &StepUser| {
            let device = user.device();
            device.is_some_and(|it| it.class == grant.class && grant.devices.contains(&it.id))
        };
        bundle.cdi.iter().any(|it| it.class == grant.class) && step.users.iter().any(is_granted)
    })
}

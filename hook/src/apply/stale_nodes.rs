//! Finds device nodes that the engine has created with an outdated device number. This happens if a
//! CDI specification was written before the number of a device changed. Another device may have the
//! outdated number now.

use injection_plan::plan::{Action, InjectionPlan, InjectionStep, SpecNode, StepOwner};

use crate::cgroup::DeviceRule;
use crate::oci::Bundle;

/// A device node of config.json with an outdated device number: the injection plan has another
/// number for the same path.
pub(crate) struct StaleNode<'a> {
    pub(crate) node: &'a SpecNode,
    /// The device rules of config.json that apply only to this node.
    pub(crate) rules: Vec<DeviceRule>,
    /// The injection step that creates the planned node at the same path.
    pub(crate) step: &'a InjectionStep,
}

impl<'a> StaleNode<'a> {
    /// Returns the nodes with outdated numbers that a CDI specification or the wrapper runtime has
    /// added. A node that the user requested directly from the engine (`--device`) is never
    /// included.
    pub(crate) fn find_all(plan: &'a InjectionPlan, bundle: &'a Bundle) -> Vec<Self> {
        let spec = &bundle.spec_devices;
        let mut stale_nodes = Vec::new();
        for step in &plan.steps {
            let (path, number) = match &step.action {
                Action::Node { mount, number, .. } => (&mount.path, *number),
                Action::MakeNode { path, number, .. } => (path, *number),
                _ => continue,
            };
            let nodes_at_path = spec.nodes.iter().filter(|node| node.path == *path);
            for node in nodes_at_path.filter(|node| node.number != number) {
                if !is_granted_by_cdi(step, plan, bundle) {
                    continue;
                }
                // If config.json has a node with the same number at another path, the user may have
                // requested that node. The rules may belong to it, so they are not returned.
                let mut nodes_with_number = spec
                    .nodes
                    .iter()
                    .filter(|other_node| other_node.number == node.number);
                let is_only_path = nodes_with_number.all(|other_node| other_node.path == node.path);
                let rules = is_only_path.then(|| spec.find_exact_rules(node.number));
                stale_nodes.push(StaleNode {
                    node,
                    rules: rules.into_iter().flatten().collect(),
                    step,
                });
            }
        }
        stale_nodes
    }
}

/// Reports whether a step is for a device that a CDI specification or the wrapper runtime added to
/// the container.
pub(crate) fn is_granted_by_cdi(
    step: &InjectionStep,
    plan: &InjectionPlan,
    bundle: &Bundle,
) -> bool {
    plan.grants.iter().any(|grant| {
        let is_granted = |owner: &StepOwner| {
            let device = owner.device();
            device.is_some_and(|device| {
                device.class == grant.class && grant.devices.contains(&device.id)
            })
        };
        bundle
            .cdi_grants
            .iter()
            .any(|cdi_grant| cdi_grant.class == grant.class)
            && step.owners.iter().any(is_granted)
    })
}

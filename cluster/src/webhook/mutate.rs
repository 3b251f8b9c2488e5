//! The mutation of a pod: a pure function of the pod and its namespace's mappings.

use anyhow::{anyhow, ensure};
use json_patch::Patch;
use json_patch::jsonptr::PointerBuf;

use device_class::name::excerpt;

use super::api::FUNCTION_VARIABLE;
use super::container::PodContainer;
use super::mappings::Namespace;
use super::pod::Pod;

/// The maximum number of operations that change one pod. It bounds the memory for one review. A
/// pod that a node can run needs fewer.
const MAX_OPERATIONS: usize = 4096;

/// The changes of a pod that is admitted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mutation {
    pub patch: Patch,
    pub warnings: Vec<String>,
}

/// Plans the changes of a pod: the friendly names in the resources of its containers, init
/// containers and sidecars are replaced.
///
/// # Errors
/// Returns the reason why the pod is refused, which names the container.
pub fn plan_mutation(pod: &Pod<'_>, namespace: &Namespace) -> anyhow::Result<Mutation> {
    let mut mutation = Mutation::default();
    for (list, index, container) in pod.containers() {
        let mut path = PointerBuf::new();
        path.push_back("spec");
        path.push_back(list);
        path.push_back(index);
        let name = container.name.as_ref();
        let name = name.map_or("?".to_owned(), |name| excerpt(&name.0));
        let operations = PodContainer { container, path }
            .plan_operations(namespace)
            .map_err(|reason| anyhow!("container {name}: {reason}"))?;
        let sets_variables = operations
            .iter()
            .any(|operation| operation.path().to_string().contains("/env"));
        let env_from = container.env_from.as_ref();
        if sets_variables && env_from.is_some_and(|sources| !sources.is_empty()) {
            mutation.warnings.push(format!(
                "container {name}: {FUNCTION_VARIABLE}* in envFrom is not checked"
            ));
        }
        mutation.patch.0.extend(operations);
        ensure!(
            mutation.patch.0.len() <= MAX_OPERATIONS,
            "container {name}: too many FPGA resources: at most {MAX_OPERATIONS} changes of a pod \
             can be made"
        );
    }
    Ok(mutation)
}

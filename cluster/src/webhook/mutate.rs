//! Plans the changes of a pod. The plan depends only on the pod and on the mappings of its
//! namespace.

use anyhow::{anyhow, ensure};
use json_patch::Patch;
use json_patch::jsonptr::PointerBuf;

use device_class::name::excerpt;

use super::api::FUNCTION_VARIABLE_PREFIX;
use super::container::PodContainer;
use super::mappings::Namespace;
use super::pod::Pod;

/// The maximum number of patch operations for one pod. It limits the memory for one review. A pod
/// that fits on a node needs fewer operations.
const MAX_OPERATIONS: usize = 4096;

/// The changes of a pod that is admitted, and warnings for the user who created the pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mutation {
    pub patch: Patch,
    pub warnings: Vec<String>,
}

/// Plans the changes of a pod. They replace the friendly names in the resources of its containers,
/// init containers and sidecars, and add environment variables.
///
/// # Errors
/// Returns the reason why the pod is refused. The reason contains the name of the container.
pub fn plan_mutation(pod: &Pod<'_>, namespace: &Namespace) -> anyhow::Result<Mutation> {
    let mut mutation = Mutation::default();
    for (list_name, index, container) in pod.containers() {
        let mut json_pointer = PointerBuf::new();
        json_pointer.push_back("spec");
        json_pointer.push_back(list_name);
        json_pointer.push_back(index);
        let name = container.name.as_ref();
        let name = name.map_or("?".to_owned(), |name| excerpt(&name.0));
        let operations = PodContainer {
            container,
            json_pointer,
        }
        .plan_operations(namespace)
        .map_err(|reason| anyhow!("container {name}: {reason}"))?;
        let sets_variables = operations
            .iter()
            .any(|operation| operation.path().to_string().contains("/env"));
        let env_from = container.env_from.as_ref();
        if sets_variables && env_from.is_some_and(|sources| !sources.is_empty()) {
            mutation.warnings.push(format!(
                "container {name}: {FUNCTION_VARIABLE_PREFIX}* in envFrom is not checked"
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

//! The mutation of a pod: a pure function of the pod and its namespace's mappings.

use json_patch::Patch;
use json_patch::jsonptr::PointerBuf;

use device_class::name::excerpt;

use super::api::{FUNCTION_VARIABLE, PREFIX, REGION_VARIABLE};
use super::container::{MAX_UNITS, Mutated};
use super::mappings::{MappingError, Namespace};
use super::pod::Pod;

/// The maximum number of changes of a pod: more than any pod needs that a node can run.
const MAX_OPERATIONS: usize = 4096;

/// The changes of a pod that is admitted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mutation {
    /// The operations; there may be none.
    pub patch: Patch,
    pub warnings: Vec<String>,
}

/// Why a pod is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("container {container}: {reason}")]
pub struct Denial {
    pub container: String,
    pub reason: DenialReason,
}

/// Why a container is refused. The first messages are those of the vendor's webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DenialReason {
    /// A name cannot be mapped.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    #[error(
        "'limits' and 'requests' for \"{PREFIX}{0}\" must be equal as extended resources cannot be \
         overcommitted"
    )]
    Overcommitted(String),
    /// A quantity is not a whole number.
    #[error("resource quantity isn't of integral type for \"{PREFIX}{0}\"")]
    NotWhole(String),
    /// The container requests ports of different modes.
    #[error("container cannot be scheduled as it requires resources operated in different modes")]
    MixedModes,
    #[error("{0} units of FPGA resources are requested, but at most {MAX_UNITS} can be mapped")]
    TooMany(u64),
    /// Too many changes, with those of the containers before it.
    #[error("too many FPGA resources: at most {MAX_OPERATIONS} changes of a pod can be made")]
    TooManyChanges,
    /// A variable is set that only the webhook may set.
    #[error(
        "variable {0} is set, but {REGION_VARIABLE}* and {FUNCTION_VARIABLE}* are set by the \
         webhook for the requested resources: remove it"
    )]
    OwnVariable(String),
}

/// Maps the names in a pod's containers, init containers and sidecars.
pub fn mutate(pod: &Pod<'_>, namespace: &Namespace) -> Result<Mutation, Denial> {
    let mut mutation = Mutation::default();
    for (list, at, container) in pod.containers() {
        let mut path = PointerBuf::new();
        path.push_back("spec");
        path.push_back(list);
        path.push_back(at);
        let name = || {
            container
                .name
                .as_ref()
                .map_or("?".to_owned(), |name| excerpt(&name.0))
        };
        let denied = |reason| Denial {
            container: name(),
            reason,
        };
        let operations = Mutated { container, path }.operations(namespace);
        let operations = operations.map_err(denied)?;
        let sets_variables = operations
            .iter()
            .any(|operation| operation.path().to_string().contains("/env"));
        let from_elsewhere = container.env_from.as_ref();
        if sets_variables && from_elsewhere.is_some_and(|from| !from.is_empty()) {
            mutation.warnings.push(format!(
                "container {}: {FUNCTION_VARIABLE}* in envFrom is not checked",
                name()
            ));
        }
        mutation.patch.0.extend(operations);
        if mutation.patch.0.len() > MAX_OPERATIONS {
            return Err(denied(DenialReason::TooManyChanges));
        }
    }
    Ok(mutation)
}

//! The mutation of a pod: a pure function of the pod and its namespace's mappings.

use json_patch::Patch;
use json_patch::jsonptr::PointerBuf;
use serde_json::Value;

use super::api::{FUNCTION_VARIABLE, PREFIX, REGION_VARIABLE};
use super::container::{Container, MAX_UNITS};
use super::mappings::{MappingError, Namespace};

/// What is done to a pod that is admitted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mutation {
    /// The changes; there may be none.
    pub patch: Patch,
    /// What the user is told.
    pub warnings: Vec<String>,
}

/// Why a pod is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("container {container}: {reason}")]
pub struct Denial {
    /// The container's name.
    pub container: String,
    /// What is wrong with it.
    pub reason: DenialReason,
}

/// What is wrong with a container. Texts that the vendor's webhook has too are the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DenialReason {
    /// A name cannot be mapped.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// Limits and requests differ.
    #[error(
        "'limits' and 'requests' for \"{0}\" must be equal as extended resources cannot be \
         overcommitted"
    )]
    Overcommitted(String),
    /// A quantity is no whole number.
    #[error("resource quantity isn't of integral type for \"{0}\"")]
    NotWhole(String),
    /// Ports of different modes are asked for.
    #[error("container cannot be scheduled as it requires resources operated in different modes")]
    MixedModes,
    /// Too many units.
    #[error("{0} units of FPGA resources are asked for, and at most {MAX_UNITS} can be mapped")]
    TooMany(u64),
    /// A variable is set that is ours to set.
    #[error(
        "variable {0} is set, but {REGION_VARIABLE}* and {FUNCTION_VARIABLE}* are set by the \
         webhook for the resources that are asked for: remove it"
    )]
    OwnVariable(String),
}

/// Maps the names in a pod's containers, init containers and sidecars. Ephemeral
/// containers have no resources.
///
/// # Errors
/// The pod cannot be admitted.
pub fn mutate(pod: &Value, namespace: &Namespace) -> Result<Mutation, Denial> {
    let mut mutation = Mutation::default();
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        for (at, value) in containers.enumerate() {
            let mut path = PointerBuf::new();
            path.push_back("spec");
            path.push_back(list);
            path.push_back(at);
            let container = Container { value, path };
            let name = || value["name"].as_str().unwrap_or("?").to_owned();
            let operations = container.operations(namespace).map_err(|reason| Denial {
                container: name(),
                reason,
            })?;
            let sets_variables = operations
                .iter()
                .any(|operation| operation.path().to_string().contains("/env"));
            let from_elsewhere = value["envFrom"]
                .as_array()
                .is_some_and(|from| !from.is_empty());
            if sets_variables && from_elsewhere {
                mutation.warnings.push(format!(
                    "container {}: {FUNCTION_VARIABLE}* in what envFrom names is not checked",
                    name()
                ));
            }
            mutation.patch.0.extend(operations);
        }
    }
    Ok(mutation)
}

/// Whether a pod asks for a resource with the prefix.
pub fn concerns(pod: &Value) -> bool {
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
    let mut containers = lists.into_iter().flatten().flatten();
    containers.any(|container| {
        let sections = ["limits", "requests"].map(|one| container["resources"][one].as_object());
        let mut keys = sections
            .into_iter()
            .flatten()
            .flat_map(|amounts| amounts.keys());
        keys.any(|key| key.starts_with(PREFIX))
    })
}

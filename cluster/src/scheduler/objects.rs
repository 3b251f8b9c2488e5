//! The parts of pods and nodes that the extender reads. Everything else in them is
//! ignored, so that newer versions of the API server work too.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// Resource names and quantities.
pub type Amounts = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, Resource, Deserialize)]
#[resource(inherit = v1::Pod)]
#[serde(default)]
pub struct Pod {
    #[serde(deserialize_with = "identity")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// The init containers and sidecars.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// The overhead of the pod's runtime class.
    #[serde(deserialize_with = "or_default")]
    pub overhead: Amounts,
    pub node_name: Option<String>,
}

/// A container, init container or sidecar.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    #[serde(deserialize_with = "or_default")]
    pub requests: Amounts,
    /// The limits. For extended resources they are equal to the requests.
    #[serde(deserialize_with = "or_default")]
    pub limits: Amounts,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Succeeded` and `Failed` are final.
    pub phase: Option<String>,
}

#[derive(Debug, Clone, Default, Resource, Deserialize)]
#[resource(inherit = v1::Node)]
#[serde(default)]
pub struct Node {
    #[serde(deserialize_with = "identity")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    pub capacity: Amounts,
    #[serde(deserialize_with = "or_default")]
    pub allocatable: Amounts,
}

/// Go writes empty lists, maps and structs as `null`.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Reads the identity of an object from its metadata. Annotations are not read, because
/// kubectl keeps whole objects there, with the values of environment variables.
fn identity<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Identity {
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
    }
    let read: Identity = or_default(from)?;
    Ok(ObjectMeta {
        name: read.name,
        uid: read.uid,
        resource_version: read.resource_version,
        labels: read.labels,
        ..ObjectMeta::default()
    })
}

impl Pod {
    /// Returns whether none of the pod's containers will run again.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}

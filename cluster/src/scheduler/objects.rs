//! Defines the fields of pods and nodes that the extender reads. Other fields are ignored, so that
//! the extender also works with newer versions of the API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// The quantities of resources by the names of the resources, such as `example.com/npu`. A quantity
/// is a text that is not parsed yet, such as `2` or `2k`.
pub type Quantities = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, Resource, Deserialize)]
#[resource(inherit = v1::Pod)]
#[serde(default)]
pub struct Pod {
    #[serde(deserialize_with = "deserialize_metadata")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "deserialize_or_default")]
    pub spec: PodSpec,
    #[serde(deserialize_with = "deserialize_or_default")]
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    #[serde(deserialize_with = "deserialize_or_default")]
    pub containers: Vec<Container>,
    /// The init containers, which include the sidecars.
    #[serde(deserialize_with = "deserialize_or_default")]
    pub init_containers: Vec<Container>,
    /// The resources that the pod needs in addition to its containers (`overhead` of its
    /// RuntimeClass).
    #[serde(deserialize_with = "deserialize_or_default")]
    pub overhead: Quantities,
    pub node_name: Option<String>,
}

/// A container, init container or sidecar.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// The restart policy of an init container. `Always` makes it a sidecar.
    pub restart_policy: Option<String>,
    #[serde(deserialize_with = "deserialize_or_default")]
    pub resources: Resources,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    #[serde(deserialize_with = "deserialize_or_default")]
    pub requests: Quantities,
    /// The limits. Kubernetes requires for extended resources that the limits equal the requests.
    #[serde(deserialize_with = "deserialize_or_default")]
    pub limits: Quantities,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// The phase of the pod, such as `Running`. The phases `Succeeded` and `Failed` are final.
    pub phase: Option<String>,
}

#[derive(Debug, Clone, Default, Resource, Deserialize)]
#[resource(inherit = v1::Node)]
#[serde(default)]
pub struct Node {
    #[serde(deserialize_with = "deserialize_metadata")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "deserialize_or_default")]
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "deserialize_or_default")]
    pub capacity: Quantities,
    #[serde(deserialize_with = "deserialize_or_default")]
    pub allocatable: Quantities,
}

/// Deserializes a value, and reads `null` as the default value, because Go writes empty lists and
/// maps as `null`.
pub(crate) fn deserialize_or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Deserializes the metadata of an object without its annotations. kubectl stores a copy of the
/// object in an annotation. The environment variables in this copy may contain secrets.
fn deserialize_metadata<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
    }
    let metadata: Metadata = deserialize_or_default(deserializer)?;
    Ok(ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        labels: metadata.labels,
        ..ObjectMeta::default()
    })
}

impl Pod {
    /// Returns whether none of the pod's containers will run again.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}

//! The tables `[class.NAME]` of config.toml.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::allocate::PlacementPolicy;
use super::file::Directory;
use super::node::{GroupId, NodeMode};
use super::path_template::PathTemplate;
use super::sharing::ReplicaCount;
use crate::name::{AttributeName, CapabilityName, EnvName, GroupName, excerpt};
use crate::template::Template;

/// The table `[class.NAME]` of config.toml, by which an administrator changes a class on this host.
/// A value that a class file can have too is also merged into the [`super::ClassSpec`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassConfig {
    /// The root directory of the class's driver, such as `/run/vendor/driver` for a driver that
    /// runs in a container.
    pub driver_root: Option<PathTemplate>,
    /// A directory whose subdirectory `dev` has the class's device nodes, if they are not in /dev.
    /// Containers get the nodes under /dev.
    pub dev_root: Option<PathTemplate>,
    /// Directories with libraries that the loader's cache does not have. They are searched before
    /// those of the class.
    pub library_directories: Vec<PathTemplate>,
    /// Directories with programs of the driver. They are searched before those of the class.
    pub program_directories: Vec<PathTemplate>,
    /// Whether the class is offered on this host.
    #[serde(rename = "enabled")]
    pub is_enabled: Option<bool>,
    /// Whether `boathook follow` keeps the devices of running containers up to date. Overrides the
    /// class file.
    #[serde(rename = "follow")]
    pub is_followed: Option<bool>,
    /// Whether programs in a container get a message when a followed device comes or goes.
    /// Overrides the class file.
    #[serde(rename = "announce")]
    pub announces_devices: Option<bool>,
    /// Whether a container starts without a device that the host does not have, and gets the device
    /// when it comes. Overrides the class file.
    #[serde(rename = "late")]
    pub allows_late_devices: Option<bool>,
    /// Whether the programs of the class that report facts are run, and their facts are used.
    /// Default `true`.
    #[serde(rename = "facts")]
    pub uses_property_programs: Option<bool>,
    /// Whether the requirements of images on the host are checked. Default `true`.
    #[serde(rename = "requirements")]
    pub checks_requirements: Option<bool>,
    /// The program that offers the class on this host.
    #[serde(rename = "serve")]
    pub server: Server,
    /// Whether the program that offers the class runs the programs of its health checks.
    #[serde(rename = "health_programs")]
    pub runs_health_programs: bool,
    /// Further values for the `map` of each attribute. They take precedence over those of the
    /// class.
    #[serde(rename = "map")]
    pub value_replacements: BTreeMap<AttributeName, BTreeMap<String, String>>,
    /// Further directories of the host that every container with the class gets,
    /// such as the one in which a daemon of the driver has its sockets.
    #[cfg_attr(test, schemars(with = "Vec<super::schema::TextOr<Directory>>"))]
    pub directories: Vec<Directory>,
    /// The mode of the class's device nodes in containers. It overrides the class file and the mode
    /// of the host's nodes.
    pub node_mode: Option<NodeMode>,
    /// The number of the group of the class's device nodes in containers.
    pub node_gid: Option<GroupId>,
    /// In place of `node_gid`: the name of a group of this host.
    pub node_group: Option<GroupName>,
    /// The number of containers that may have a device at once, for all devices or by resource.
    /// Overrides the class file.
    pub replicas: Option<Replicas>,
    /// The maximum number of shares of devices that one container may have.
    pub max_per_container: Option<ReplicaCount>,
    /// The choice of devices that the plugin recommends for one container.
    pub placement: Option<PlacementPolicy>,
    /// Environment variables that a container gets with a device: further ones, or other values for
    /// those of the class.
    pub env: BTreeMap<EnvName, Template>,
    /// The capabilities of a container that requests no capabilities. Overrides the class file.
    pub default_capabilities: Option<Vec<CapabilityName>>,
    /// The resource under which the devices are offered. Overrides the class file.
    pub resource: Option<Template>,
    /// The devices that this host offers. Default: all devices.
    #[serde(rename = "only")]
    pub allowed_devices: Option<Vec<DeviceFilter>>,
    /// The devices that this host does not offer.
    #[serde(rename = "except")]
    pub hidden_devices: Vec<DeviceFilter>,
    /// Capabilities that no container gets. A request that names one of them is refused.
    #[serde(rename = "forbid")]
    pub forbidden_capabilities: BTreeSet<CapabilityName>,
    /// Pods that get the devices of this class that they request, without an allocation.
    pub trusted_pods: Vec<PodPattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum Replicas {
    /// The number of replicas of each device.
    All(ReplicaCount),
    /// The number of replicas of each device, by resource. Devices of other resources are not
    /// shared.
    ByResource(BTreeMap<String, ReplicaCount>),
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReplicasVisitor)
    }
}

/// Deserializes [`Replicas`]. A derived untagged enum is not used, because its error would not say
/// why a number is invalid.
struct ReplicasVisitor;

impl<'de> Visitor<'de> for ReplicasVisitor {
    type Value = Replicas;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of replicas, or a table of them by resource")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Replicas, E> {
        let count = ReplicaCount::try_from(number).map_err(E::custom)?;
        Ok(Replicas::All(count))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Replicas, A::Error> {
        let map = BTreeMap::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Replicas::ByResource(map))
    }
}

impl ClassConfig {
    /// Returns the number of containers that may have a device of the resource at once. Returns
    /// `None` if config.toml does not set a number for this resource.
    pub(crate) fn find_replica_count(&self, resource: &str) -> Option<ReplicaCount> {
        match self.replicas.as_ref()? {
            Replicas::All(_) => None,
            Replicas::ByResource(replicas) => replicas.get(resource).copied(),
        }
    }

    /// Returns whether the class's programs are run for facts, and the facts are used.
    pub fn uses_driver_properties(&self) -> bool {
        self.uses_property_programs.unwrap_or(true)
    }
}

/// The program that offers the devices of a class to Kubernetes: the plugin or the DRA driver. Not
/// both may offer a class, because neither knows the allocations of the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Server {
    /// `boathook-plugin` offers the devices as an extended resource.
    #[default]
    Plugin,
    /// `boathook-dra` offers the devices for resource claims.
    Dra,
}

/// An entry of `only` or `except`: a rule that selects devices by a name that a request may use, or
/// by attributes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a device's id, or a table of attributes")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum DeviceFilter {
    /// An id, an index or an alias.
    Name(String),
    /// The values that these attributes of a selected device must all have.
    Attributes(BTreeMap<AttributeName, String>),
}

/// A pattern for pods: all pods of a namespace, or those of one workload in it, whose names begin
/// with the name of the workload.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PodPattern {
    namespace: String,
    name: Option<String>,
}

impl PodPattern {
    /// Returns whether the pattern matches this pod.
    pub fn matches(&self, namespace: &str, pod: &str) -> bool {
        self.namespace == namespace
            && self.name.as_deref().is_none_or(|name| {
                let suffix = pod.strip_prefix(name);
                suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
            })
    }
}

impl TryFrom<String> for PodPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            None => (text.as_str(), None),
            Some((namespace, name)) => (namespace, Some(name)),
        };
        // The name of a namespace is an RFC 1123 label, and the name of a pod is an RFC 1123
        // subdomain.
        let is_valid_name = |part: &str| {
            let is_valid_char =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            !part.is_empty() && part.chars().all(is_valid_char)
        };
        if is_valid_name(namespace) && name.is_none_or(is_valid_name) {
            Ok(PodPattern {
                namespace: namespace.to_owned(),
                name: name.map(str::to_owned),
            })
        } else {
            let text = excerpt(&text);
            Err(format!(
                "`{text}` is neither a namespace nor namespace/name"
            ))
        }
    }
}

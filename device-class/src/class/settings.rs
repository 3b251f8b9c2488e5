//! The tables `[class.NAME]` of config.toml.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::allocate::Preference;
use super::file::Directory;
use super::node::{GroupId, NodeMode};
use super::path_template::PathTemplate;
use super::sharing::ReplicaCount;
use crate::name::{AttributeName, CapabilityName, EnvName, GroupName, excerpt};
use crate::template::Template;

/// The table `[class.NAME]`, with the differences between this host and the class file. Values that
/// the class file can have too are already merged into the class.
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
    /// Directories with libraries that the loader's cache does not have, before those
    /// of the class.
    pub library_directories: Vec<PathTemplate>,
    /// Directories with programs of the driver, before those of the class.
    pub program_directories: Vec<PathTemplate>,
    /// Whether the class is offered on this host.
    pub enabled: Option<bool>,
    /// Whether running containers follow the devices of the class. Overrides the class file.
    pub follow: Option<bool>,
    /// Whether programs in these containers get announcements. Overrides the class file.
    pub announce: Option<bool>,
    /// Whether containers start without a device that is absent, and get it when it comes, instead
    /// of what the class says.
    pub late: Option<bool>,
    /// Whether the class's programs are run for facts, and these used. Default `true`.
    pub facts: Option<bool>,
    /// Whether the requirements of images on the host are checked. Default `true`.
    pub requirements: Option<bool>,
    /// The program that offers the class on this host.
    pub serve: Server,
    /// Whether this program runs the programs of the class's health checks.
    pub health_programs: bool,
    /// Further values for the `map` of each attribute. They take precedence over those of the
    /// class.
    pub map: BTreeMap<AttributeName, BTreeMap<String, String>>,
    /// Further directories of the host that every container with the class gets,
    /// such as the one in which a daemon of the driver has its sockets.
    #[cfg_attr(test, schemars(with = "Vec<super::schema::TextOr<Directory>>"))]
    pub directories: Vec<Directory>,
    /// The mode of the class's nodes in containers, instead of the class's or the host's.
    pub node_mode: Option<NodeMode>,
    /// The number of the group of the class's nodes in containers.
    pub node_gid: Option<GroupId>,
    /// In place of `node_gid`: the name of a group of this host.
    pub node_group: Option<GroupName>,
    /// The number of containers that may have a device at once, for all devices or by resource.
    /// Overrides the class file.
    pub replicas: Option<Replicas>,
    /// The maximum number of shares of one container.
    pub max_per_container: Option<ReplicaCount>,
    /// The choice of devices that the plugin recommends for one container.
    pub placement: Option<Preference>,
    /// Further variables of devices, or other values for variables of the class.
    pub env: BTreeMap<EnvName, Template>,
    /// The capabilities of a container that sets no capabilities. Overrides the class file.
    pub default_capabilities: Option<Vec<CapabilityName>>,
    /// The resource. Overrides the class file.
    pub resource: Option<Template>,
    /// The only devices that this host offers.
    pub only: Option<Vec<DeviceFilter>>,
    /// The devices that this host does not offer.
    pub except: Vec<DeviceFilter>,
    /// Capabilities that no container gets: a request that names one is refused.
    pub forbid: BTreeSet<CapabilityName>,
    /// Pods that get the devices that they request of this class, without an allocation.
    pub trusted_pods: Vec<PodPattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum Replicas {
    /// The number for each device.
    All(ReplicaCount),
    /// The number for each device of these resources. Devices of other resources are not shared.
    ByResource(BTreeMap<String, ReplicaCount>),
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReplicasVisitor)
    }
}

/// This visitor is used in place of an untagged enum, whose errors do not name the fault of a
/// number.
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
    /// Returns the number of containers that may have a device of a resource at once, if it is
    /// configured by resource.
    pub(crate) fn replicas_of(&self, resource: &str) -> Option<ReplicaCount> {
        match self.replicas.as_ref()? {
            Replicas::All(_) => None,
            Replicas::ByResource(replicas) => replicas.get(resource).copied(),
        }
    }

    /// Returns whether the class's programs are run for facts, and the facts are used.
    pub fn uses_facts(&self) -> bool {
        self.facts.unwrap_or(true)
    }
}

/// The program that offers a class's devices to Kubernetes. Only one of the two may do so, because
/// neither knows the allocations of the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Server {
    /// `boathook-plugin`, as an extended resource.
    #[default]
    Plugin,
    /// `boathook-dra`, for resource claims.
    Dra,
}

/// Selects devices by a name that a request may use, or by attributes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a device's id, or a table of attributes")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum DeviceFilter {
    /// An id, an index or an alias.
    Name(String),
    /// All of these attributes have these values.
    Attributes(BTreeMap<AttributeName, String>),
}

/// Selects the pods of a namespace, or of one workload in it.
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
                let rest = pod.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
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
        // RFC 1123 labels and, for a pod's name, subdomains.
        let fits = |part: &str| {
            let fit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            !part.is_empty() && part.chars().all(fit)
        };
        if fits(namespace) && name.is_none_or(fits) {
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

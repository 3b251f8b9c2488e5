//! `[class.NAME]`: what config.toml decides of a class.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::allocate::Preference;
use super::file::Directory;
use super::node::NodeMode;
use super::path_template::PathTemplate;
use super::sharing::ReplicaCount;
use crate::name::{AttributeName, CapabilityName, EnvName, excerpt};
use crate::template::Template;

/// `[class.NAME]`: what differs on this host from the class file. Of what the file can say as
/// well, the class has the outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassConfig {
    /// Where the class's driver has its files, such as
    /// `/run/vendor/driver` for a driver that runs in a container.
    pub driver_root: Option<PathTemplate>,
    /// Where the class's device nodes are, if not in /dev: a directory with a `dev`
    /// in it. Containers get them under /dev.
    pub dev_root: Option<PathTemplate>,
    /// Directories with libraries that the loader's cache does not have, before those
    /// of the class.
    pub library_directories: Vec<PathTemplate>,
    /// Directories with programs of the driver, before those of the class.
    pub program_directories: Vec<PathTemplate>,
    /// Whether the class is offered on this host.
    pub enabled: Option<bool>,
    /// Whether containers that run follow its devices, instead of what the class says.
    pub follow: Option<bool>,
    /// Whether programs in these containers are told, instead of what the class says.
    pub announce: Option<bool>,
    /// Whether containers start without a device that is absent, and get it when it comes, instead
    /// of what the class says.
    pub late: Option<bool>,
    /// Whether the class's programs are run for facts, and these used. Default `true`.
    pub facts: Option<bool>,
    /// Whether what images require of the host is checked. Default `true`.
    pub requirements: Option<bool>,
    /// Which program offers the class on this host.
    pub serve: Server,
    /// Whether it runs the programs of the class's health checks.
    pub health_programs: bool,
    /// By attribute: further values for its `map`, which go before the class's.
    pub map: BTreeMap<AttributeName, BTreeMap<String, String>>,
    /// Further directories of the host that every container with the class gets,
    /// such as the one in which a daemon of the driver has its sockets.
    pub directories: Vec<Directory>,
    /// The mode of the class's nodes in containers, instead of the class's or the host's.
    pub node_mode: Option<NodeMode>,
    pub node_gid: Option<u32>,
    /// How many containers may have a device at once, instead of the class file's number:
    /// for all devices, or by resource.
    pub replicas: Option<Replicas>,
    /// The maximum number of shares of one container.
    pub max_per_container: Option<ReplicaCount>,
    /// Which devices the plugin recommends for one container.
    pub placement: Option<Preference>,
    /// Further variables of devices, or other values of the class's.
    pub env: BTreeMap<EnvName, Template>,
    /// The capabilities of a container that sets none, instead of the class's.
    pub default_capabilities: Option<Vec<CapabilityName>>,
    /// The resource, instead of the class's.
    pub resource: Option<Template>,
    /// The devices that there are, as far as this host's users are concerned.
    pub only: Option<Vec<DeviceFilter>>,
    /// The devices that there are not.
    pub except: Vec<DeviceFilter>,
    /// Capabilities that no container gets: a request that names one is refused.
    pub forbid: BTreeSet<CapabilityName>,
    /// Pods that get what they request of this class.
    pub trusted_pods: Vec<PodPattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replicas {
    /// Of each device.
    All(ReplicaCount),
    /// Of each device of these resources; others are not shared.
    ByResource(BTreeMap<String, ReplicaCount>),
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReplicasVisitor)
    }
}

/// Unlike an untagged enum, it says what is wrong with a number.
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
    /// How many containers may have a device of a resource at once, if that is said for
    /// resources.
    pub(crate) fn replicas_of(&self, resource: &str) -> Option<ReplicaCount> {
        match self.replicas.as_ref()? {
            Replicas::All(_) => None,
            Replicas::ByResource(replicas) => replicas.get(resource).copied(),
        }
    }

    /// Whether the class's programs are run for facts, and these used.
    pub fn uses_facts(&self) -> bool {
        self.facts.unwrap_or(true)
    }
}

/// What offers a class's devices to Kubernetes: one of two, since neither knows what the
/// other allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// `boathook-plugin`, as an extended resource.
    #[default]
    Plugin,
    /// `boathook-dra`, for resource claims.
    Dra,
}

/// Some devices: by a name that a request may use, or by attributes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a device's id, or a table of attributes")]
pub enum DeviceFilter {
    /// An id, an index or an alias.
    Name(String),
    /// All of these attributes have these values.
    Attributes(BTreeMap<AttributeName, String>),
}

/// Some pods: a namespace, or those of one workload in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PodPattern {
    namespace: String,
    name: Option<String>,
}

impl PodPattern {
    /// Whether the pattern means this pod.
    pub fn fits(&self, namespace: &str, pod: &str) -> bool {
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

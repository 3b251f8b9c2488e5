//! The tables `[class.NAME]` of config.toml, with which an administrator changes classes on a host.

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

/// The table `[class.NAME]` of config.toml, with which an administrator changes a class on this
/// host. If a class file can have the same value, it is also merged into [`super::ClassSpec`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassConfig {
    /// The root directory of the class's driver. For example, it is `/run/vendor/driver` if the
    /// driver's files come from a container.
    pub driver_root: Option<PathTemplate>,
    /// The directory whose subdirectory `dev` has the class's device nodes, if they are not in the
    /// host's /dev. In containers the nodes are in /dev.
    pub dev_root: Option<PathTemplate>,
    /// Directories with libraries that are not in the host's ld.so.cache. They are searched before
    /// the directories in the class file.
    pub library_directories: Vec<PathTemplate>,
    /// Directories with programs of the driver. They are searched before the directories in the
    /// class file.
    pub program_directories: Vec<PathTemplate>,
    /// Whether the plugin or the DRA driver offers the class on this host.
    #[serde(rename = "enabled")]
    pub is_enabled: Option<bool>,
    /// Whether `boathook follow`, the daemon that updates running containers, gives a device back
    /// to its containers after it was unplugged and plugged in. Overrides the class file.
    #[serde(rename = "follow")]
    pub is_followed: Option<bool>,
    /// Whether programs in a container get a message when a device comes or goes that `boathook
    /// follow` tracks. Overrides the class file.
    #[serde(rename = "announce")]
    pub announces_devices: Option<bool>,
    /// Whether a container that requests a missing device starts without the device, and gets it
    /// when it is plugged in. Overrides the class file.
    #[serde(rename = "late")]
    pub allows_late_devices: Option<bool>,
    /// Whether the class's `[[facts]]` programs are run and their facts are used. Default `true`.
    #[serde(rename = "facts")]
    pub uses_property_programs: Option<bool>,
    /// Whether the requirements that images state about the host are checked. Default `true`.
    #[serde(rename = "requirements")]
    pub checks_requirements: Option<bool>,
    /// The program that offers the class to Kubernetes on this host: the plugin or the DRA driver.
    #[serde(rename = "serve")]
    pub server: Server,
    /// Whether the program that offers the class (the plugin or the DRA driver) runs the programs
    /// of the class's health checks.
    #[serde(rename = "health_programs")]
    pub runs_health_programs: bool,
    /// Additional entries for the `map` of an attribute. They take precedence over the entries in
    /// the class file.
    #[serde(rename = "map")]
    pub value_replacements: BTreeMap<AttributeName, BTreeMap<String, String>>,
    /// Additional directories of the host that every container with the class gets, such as a
    /// directory with the sockets of the driver's daemon.
    #[cfg_attr(test, schemars(with = "Vec<super::schema::TextOrTable<Directory>>"))]
    pub directories: Vec<Directory>,
    /// The mode of the class's device nodes in containers. It overrides the class file, and the
    /// modes of the nodes on the host.
    pub node_mode: Option<NodeMode>,
    /// The group id (gid) that owns the class's device nodes in containers.
    pub node_gid: Option<GroupId>,
    /// Instead of `node_gid`: the name of a group of this host.
    pub node_group: Option<GroupName>,
    /// The number of containers that may have the same device at once: one number for all devices,
    /// or one for each resource. Overrides the class file.
    pub replicas: Option<Replicas>,
    /// The maximum number of shares (slots of shared devices) that one container may have.
    pub max_per_container: Option<ReplicaCount>,
    /// The rule by which the plugin recommends devices for one container. Overrides the class file.
    pub placement: Option<PlacementPolicy>,
    /// Environment variables that a container gets with a device. They are added to those of the
    /// class file, or replace the value of a variable with the same name.
    pub env: BTreeMap<EnvName, Template>,
    /// The capabilities that a container gets if it requests none. Overrides the class file.
    pub default_capabilities: Option<Vec<CapabilityName>>,
    /// The resource under which the devices are offered. Overrides the class file.
    pub resource: Option<Template>,
    /// The devices that this host offers. Default: all devices.
    #[serde(rename = "only")]
    pub allowed_devices: Option<Vec<DeviceFilter>>,
    /// The devices that this host does not offer.
    #[serde(rename = "except")]
    pub hidden_devices: Vec<DeviceFilter>,
    /// Capabilities that no container gets. A request for one of them is refused.
    #[serde(rename = "forbid")]
    pub forbidden_capabilities: BTreeSet<CapabilityName>,
    /// Pods that get the devices of this class that they request, without an allocation by
    /// Kubernetes.
    pub trusted_pods: Vec<PodPattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum Replicas {
    /// The number of containers that may have the same device at once, for all devices.
    All(ReplicaCount),
    /// The number of containers that may have the same device at once, for each resource. Devices
    /// of other resources are not shared.
    ByResource(BTreeMap<String, ReplicaCount>),
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReplicasVisitor)
    }
}

/// Deserializes [`Replicas`]. An untagged enum is not derived, because its error would not say why
/// a number is invalid.
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
    /// Returns the number of containers that may have the same device of this resource at once.
    /// Returns `None` if config.toml does not set a number for this resource alone.
    pub(crate) fn find_replica_count(&self, resource: &str) -> Option<ReplicaCount> {
        match self.replicas.as_ref()? {
            Replicas::All(_) => None,
            Replicas::ByResource(replicas) => replicas.get(resource).copied(),
        }
    }

    /// Returns whether the programs of the class that report driver properties (`[[facts]]`) are
    /// run, and their properties are used (`facts` in config.toml, by default true).
    pub fn uses_driver_properties(&self) -> bool {
        self.uses_property_programs.unwrap_or(true)
    }
}

/// The program that offers the devices of a class to Kubernetes: the plugin or the DRA driver. The
/// two must not offer the same class, because neither knows which devices the other has allocated.
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

/// An entry of `only` or `except`. It selects devices by a name, or by the values of attributes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a device's id, or a table of attributes")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum DeviceFilter {
    /// The id, the index or an alias of a device.
    Name(String),
    /// Values of attributes. A device is selected if it has all these values.
    Attributes(BTreeMap<AttributeName, String>),
}

/// A pattern for pods: all pods of a namespace, or the pods of one workload in it. The names of a
/// workload's pods begin with the workload's name. Examples: `kube-system`, `monitoring/exporter`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PodPattern {
    namespace: String,
    name: Option<String>,
}

impl PodPattern {
    /// Returns whether the pattern matches this pod. For example, `monitoring/exporter` matches the
    /// pods `exporter` and `exporter-x7k2p` of the namespace `monitoring`.
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
        // subdomain. Both have only these characters.
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

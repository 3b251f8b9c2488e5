//! `[class.NAME]`: what differs on this host from a class file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Config;
use crate::class::{
    ClassSpec, Condition, DeviceClass, DeviceFilter, Directory, Node, NodeMode, PathTemplate,
    PodPattern, Preference, ReplicaCount, Server, Settings, short_or_table,
};
use crate::load::ClassSource;
use crate::name::{AttributeName, CapabilityName, EnvName};
use crate::pattern::PathPattern;
use crate::similar;
use crate::strict_toml::FileError;
use crate::template::Template;

/// `[class.NAME]`: what differs on this host from the class file.
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
    /// Whether the class is offered on this host.
    pub enabled: Option<bool>,
    /// Whether containers that run follow its devices, instead of what the class says.
    pub follow: Option<bool>,
    /// Whether programs in these containers are told, instead of what the class says.
    pub announce: Option<bool>,
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
    #[serde(deserialize_with = "short_or_table")]
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

impl Config {
    /// Reads a class, as this host has it.
    pub fn class(&self, source: &ClassSource) -> Result<DeviceClass, FileError> {
        self.adapted(source.parse()?, &source.path)
    }

    /// A class as this host has it; `file` is where it was read.
    pub fn adapted(&self, mut class: DeviceClass, file: &Path) -> Result<DeviceClass, FileError> {
        let name = &class.name;
        let Some(config) = self.class.get(name) else {
            return Ok(class);
        };
        let failed = |reason: String| {
            FileError::whole(
                file,
                format!("with [class.{name}] of config.toml: {reason}"),
            )
        };
        config.change(&mut class.spec).map_err(failed)?;
        class.settings = config.settings();
        let checked = class.check();
        checked.map_err(|error| failed(error.to_string()))?;
        config.take_out_forbidden(&mut class.spec).map_err(failed)?;
        Ok(class)
    }
}

impl ClassConfig {
    fn settings(&self) -> Settings {
        Settings {
            serve: self.serve,
            facts: self.facts.unwrap_or(true),
            health_programs: self.health_programs,
            directories: self.directories.clone(),
            only: self.only.clone(),
            replicas: match &self.replicas {
                Some(Replicas::ByResource(replicas)) => replicas.clone(),
                _ => BTreeMap::new(),
            },
            except: self.except.clone(),
            max_per_container: self.max_per_container.map(ReplicaCount::get),
            forbidden: self.forbid.clone(),
            trusted_pods: self.trusted_pods.clone(),
        }
    }

    fn change(&self, spec: &mut ClassSpec) -> Result<(), String> {
        let sources = spec
            .discover
            .iter_mut()
            .flat_map(|source| &mut source.attributes);
        for attribute in spec.attributes.iter_mut().chain(sources) {
            let mut names = attribute.names();
            let further = names.find_map(|name| self.map.get(name));
            drop(names);
            if let Some(further) = further {
                attribute.map.extend(further.clone());
            }
        }
        let directories = self.library_directories.iter().cloned();
        spec.library_directories.splice(0..0, directories);
        if let Some(replicas) = &self.replicas {
            let sharing = spec.sharing.get_or_insert_default();
            sharing.replicas = match replicas {
                Replicas::All(count) => Some(*count),
                Replicas::ByResource(_) => None,
            };
            sharing.replicas_from = None;
        }
        spec.allocate.placement = self.placement.unwrap_or(spec.allocate.placement);
        spec.device.env.extend(self.env.clone());
        if let Some(names) = &self.default_capabilities {
            spec.request.default_capabilities = names.clone();
        }
        if self.requirements == Some(false) {
            spec.request.requirements = None;
        }
        if let Some(resource) = &self.resource {
            spec.resource = resource.clone();
        }
        for node in nodes(spec) {
            node.mode = self.node_mode.or(node.mode);
            node.gid = self.node_gid.or(node.gid);
            if let Some(make) = &mut node.make {
                make.mode = self.node_mode.or(make.mode);
                make.gid = self.node_gid.or(make.gid);
            }
        }
        spec.enabled = self.enabled.unwrap_or(spec.enabled);
        spec.follow = self.follow.unwrap_or(spec.follow);
        spec.announce = self.announce.unwrap_or(spec.announce && spec.follow);
        if let Some(root) = &self.driver_root {
            spec.driver_root = Some(root.clone());
        }
        match &self.dev_root {
            Some(root) => move_nodes(spec, root),
            None => Ok(()),
        }
    }
}

impl ClassConfig {
    /// Takes out all that only a forbidden capability gives, so that neither `all` nor
    /// another capability, a default or a CDI file does.
    fn take_out_forbidden(&self, spec: &mut ClassSpec) -> Result<(), String> {
        let known = spec.capabilities();
        if let Some(unknown) = self.forbid.difference(&known).next() {
            let near = similar::nearest(unknown.as_str(), known.iter().map(|name| name.as_str()));
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(format!(
                "`{unknown}` in `forbid` is not a capability of the class{near}"
            ));
        }
        let is_allowed =
            |name: &Option<CapabilityName>| !name.as_ref().is_some_and(|n| self.forbid.contains(n));
        spec.edits.retain(|edits| is_allowed(&edits.capability));
        let lists = spec.discover.iter_mut().map(|source| &mut source.nodes);
        let lists = lists.chain(spec.edits.iter_mut().map(|edits| &mut edits.nodes));
        for list in lists.chain([&mut spec.device.nodes]) {
            list.retain(|node| is_allowed(&node.capability));
        }
        let request = &mut spec.request;
        request
            .default_capabilities
            .retain(|name| !self.forbid.contains(name));
        request
            .implies
            .retain(|name, _| !self.forbid.contains(name));
        for implied in request.implies.values_mut() {
            implied.retain(|name| !self.forbid.contains(name));
        }
        request
            .capability_32bit
            .take_if(|name| self.forbid.contains(name));
        Ok(())
    }
}

/// Has all that is in /dev looked for under a root of its own.
fn move_nodes(spec: &mut ClassSpec, root: &PathTemplate) -> Result<(), String> {
    spec.driver_path
        .iter_mut()
        .try_for_each(|p| moved(p, root))?;
    for source in &mut spec.discover {
        source.path.iter_mut().try_for_each(|p| moved(p, root))?;
        for condition in &mut source.require {
            if let Condition::Exists(pattern) | Condition::Absent(pattern) = condition {
                moved(pattern, root)?;
            }
        }
    }
    let below = |path: &PathTemplate| path.below(root).map_err(|error| error.to_string());
    for node in nodes(spec) {
        let container_path = node.container_path.take();
        node.container_path = Some(container_path.unwrap_or_else(|| node.path.clone()));
        node.path = below(&node.path)?;
        for preferred in &mut node.prefer {
            *preferred = below(preferred)?;
        }
        node.for_each.iter_mut().try_for_each(|p| moved(p, root))?;
    }
    Ok(())
}

/// All nodes that a class names.
fn nodes(spec: &mut ClassSpec) -> impl Iterator<Item = &mut Node> {
    let of_sources = spec
        .discover
        .iter_mut()
        .flat_map(|source| &mut source.nodes);
    let of_edits = spec.edits.iter_mut().flat_map(|edits| &mut edits.nodes);
    of_sources.chain(&mut spec.device.nodes).chain(of_edits)
}

fn moved(pattern: &mut PathPattern, root: &PathTemplate) -> Result<(), String> {
    let text = pattern.to_string();
    if text.starts_with("/dev/") {
        let root = root.template().to_string();
        let text = format!("{}{text}", root.trim_end_matches('/'));
        *pattern = PathPattern::try_from(text).map_err(|error| error.to_string())?;
    }
    Ok(())
}

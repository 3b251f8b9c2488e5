//! The schema of a class file. Each type is one table of the file; what can be
//! checked in one value is checked while it is read, so that the message names
//! the line. `docs/device-classes.md` is the reference for those who write one.

mod allocate;
mod attribute;
mod claims;
mod condition;
mod edits;
mod filter;
mod health;
mod mask;
mod mention;
mod path_template;
mod prepare;
mod request;
mod schema;
mod sharing;
mod short_form;
mod validate;

use std::collections::BTreeSet;

use serde::Deserialize;

pub use allocate::{Allocate, CdiTemplate, CdiTemplateError, Preference};
pub use attribute::{AttributeSource, Origin, Says, Text};
pub use claims::{Claimed, Claims};
pub use condition::{Condition, Expectation};
pub use edits::{
    Directory, Edits, File, Library, LibraryNames, NamePattern, Node, NodeMode, SoName,
    SoNameTemplate,
};
pub use filter::DeviceFilter;
pub use health::{FileRule, HealthCheck, HealthTest};
pub use mask::Mask;
pub(crate) use mention::mentions;
pub use path_template::{PathTemplate, PathTemplateError};
pub use prepare::{MAX_CONTAINER_START, MAX_PRE_START, Prepare, Timeout, When};
pub use request::{Normalize, PairSpec, RequestSpec, RequirementSpec};
pub use schema::JSON_SCHEMA;
pub use sharing::{MAX_REPLICAS, ReplicaCount, SHARED_SUFFIX, Sharing};
pub(crate) use short_form::short_or_table;
pub use validate::ClassRuleError;

use crate::name::{CapabilityName, ClassName, EnvName};
use crate::pattern::PathPattern;
use crate::template::Template;

/// One class of devices: a whole class file, checked.
#[derive(Debug, Clone)]
pub struct DeviceClass {
    /// The file's name without `.toml`.
    pub name: ClassName,
    /// What the file says.
    pub spec: ClassSpec,
}

/// What a class file says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassSpec {
    /// The schema's version; there is one so far.
    pub version: Version,
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// The extended resource, fixed or by template per device.
    pub resource: Template,
    /// Whether the plugin offers it unless the configuration says otherwise.
    /// Classes that divide the same hardware in different ways say `false`.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How a container asks.
    pub request: RequestSpec,
    /// Where the class's driver keeps its files, when that is not the host's
    /// root: a directory on the host that holds a root of its own.
    #[serde(default)]
    pub driver_root: Option<PathTemplate>,
    /// Directories with libraries that the loader's cache does not have: hosts
    /// without such a cache keep them in various places.
    #[serde(default)]
    pub library_directories: Vec<PathTemplate>,
    /// What is there when the class's driver is loaded. Where nothing matches,
    /// nothing is looked for.
    #[serde(default)]
    pub driver: Option<PathPattern>,
    /// Attributes of the host as a whole, such as the driver's version.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// Where devices are found: the first source that finds any is the one,
    /// unless a later one says `also`.
    pub discover: Vec<Source>,
    /// What one device is.
    pub device: DeviceSpec,
    /// What the plugin answers the kubelet besides names.
    #[serde(default)]
    pub allocate: Allocate,
    /// How often a device is offered.
    #[serde(default)]
    pub sharing: Option<Sharing>,
    /// What is done with a device before a container gets it.
    #[serde(default)]
    pub prepare: Option<Prepare>,
    /// What a container gets once, whatever the number of its devices.
    #[serde(default)]
    pub edits: Vec<Edits>,
    /// By config.toml: the devices that there are.
    #[serde(skip)]
    pub only: Option<Vec<DeviceFilter>>,
    /// By config.toml: the devices that there are not.
    #[serde(skip)]
    pub except: Vec<DeviceFilter>,
}

/// The schema's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub enum Version {
    /// `version = 1`.
    One,
}

impl TryFrom<i64> for Version {
    type Error = String;

    fn try_from(version: i64) -> Result<Self, String> {
        match version {
            1 => Ok(Version::One),
            other => Err(format!(
                "version {other} is not known to this program, which reads 1"
            )),
        }
    }
}

/// `[[discover]]`: one tree in which devices of the class may be found.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// One match is one candidate. Captures become attributes.
    #[serde(default)]
    pub path: Option<PathPattern>,
    /// Instead of a path: so many virtual devices, with the attribute `index`.
    #[serde(default)]
    pub count: Option<u16>,
    /// Whether its devices come in addition to those of the sources before,
    /// instead of in their stead.
    #[serde(default)]
    pub also: bool,
    /// The id of the device that such a device is a part of. A device with parts
    /// is not offered besides them.
    #[serde(default)]
    pub part_of: Option<Template>,
    /// Whether the match has to be a symbolic link, or must not be one.
    #[serde(default)]
    pub symlink: Option<SymlinkRule>,
    /// What is read of each candidate, in this order.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// What has to hold for a candidate to be a device.
    #[serde(default)]
    pub require: Vec<Condition>,
    /// Nodes that only this source's devices have.
    #[serde(default, deserialize_with = "short_form::short_or_table")]
    pub nodes: Vec<Node>,
    /// What only this source's devices show of masked directories.
    #[serde(default)]
    pub shows: Vec<PathTemplate>,
    /// What has to hold for this source's devices only.
    #[serde(default)]
    pub health: Vec<HealthCheck>,
}

/// Whether a match may be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SymlinkRule {
    /// Only a symbolic link is a match.
    Required,
    /// A symbolic link is no match.
    Refused,
}

/// `[device]`: what one device is, by templates over its attributes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// The stable id, which should not change with a reboot.
    pub id: Template,
    /// The number that people use for it; devices are sorted by it.
    #[serde(default)]
    pub index: Option<Template>,
    /// Instead of an index: devices are sorted by this and counted from 0.
    #[serde(default)]
    pub order: Option<Template>,
    /// Other names that a request may use. One that several devices have
    /// means all of them.
    #[serde(default)]
    pub aliases: Vec<Template>,
    /// Where the walk up to the first `numa_node` begins.
    #[serde(default)]
    pub numa: Option<Template>,
    /// Devices with the same value belong together.
    #[serde(default)]
    pub group: Option<Template>,
    /// What has to hold for the device to be healthy.
    #[serde(default)]
    pub health: Vec<HealthCheck>,
    /// The device's own nodes.
    #[serde(default, deserialize_with = "short_form::short_or_table")]
    pub nodes: Vec<Node>,
    /// The files and directories of a [`Mask`] that a container with the device
    /// sees nevertheless.
    #[serde(default)]
    pub shows: Vec<PathTemplate>,
    /// Further variables that Allocate gives with the device.
    #[serde(default)]
    pub env: std::collections::BTreeMap<EnvName, Template>,
}

fn yes() -> bool {
    true
}

impl ClassSpec {
    /// Whether a resource of this name could be one of the class's.
    pub fn may_offer(&self, resource: &str) -> bool {
        let is_shared = self.sharing.as_ref().is_some_and(|sharing| sharing.suffix);
        let unshared = resource.strip_suffix(SHARED_SUFFIX).filter(|_| is_shared);
        self.resource.may_become(resource)
            || unshared.is_some_and(|resource| self.resource.may_become(resource))
    }

    /// Whether config.toml hides a device.
    pub(crate) fn hides(&self, device: &crate::discover::Device) -> bool {
        let fits = |filter: &DeviceFilter| filter.fits(device);
        let is_only = |only: &Vec<DeviceFilter>| only.iter().any(fits);
        !self.only.as_ref().is_none_or(is_only) || self.except.iter().any(fits)
    }

    /// Checks the rules that no single value can show.
    ///
    /// # Errors
    /// One is broken.
    pub(crate) fn check(&self) -> Result<(), ClassRuleError> {
        validate::check(self)
    }

    /// The capabilities that bring something along.
    pub fn capabilities(&self) -> BTreeSet<CapabilityName> {
        let nodes = self.edits.iter().flat_map(|edits| &edits.nodes);
        let sources = self.discover.iter().flat_map(|source| &source.nodes);
        let nodes = nodes.chain(&self.device.nodes).chain(sources);
        let edits = self.edits.iter().map(|edits| &edits.capability);
        let all = edits.chain(nodes.map(|node| &node.capability));
        let all = all.chain([&self.request.capability_32bit]);
        all.flatten().cloned().collect()
    }

    /// The capabilities that take something away.
    pub fn exceptions(&self) -> BTreeSet<CapabilityName> {
        let exceptions = self.edits.iter().filter_map(|edits| edits.unless.clone());
        exceptions.collect()
    }
}

impl DeviceClass {
    /// A class from its file's text.
    ///
    /// # Errors
    /// The text is no class file: the error names the line, the key and, for
    /// an unknown key, the nearest one that exists.
    pub fn parse(
        name: ClassName,
        path: &std::path::Path,
        text: &str,
    ) -> Result<Self, crate::strict_toml::FileError> {
        let spec: ClassSpec = crate::strict_toml::parse(path, text)?;
        validate::check(&spec)
            .map_err(|error| crate::strict_toml::FileError::rule(path, text, &error))?;
        Ok(DeviceClass { name, spec })
    }
}

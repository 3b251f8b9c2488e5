//! The schema of a class file. Each type is one table of the file; what can be
//! checked in one value is checked while it is read, so that the message names
//! the line. `docs/device-classes.md` is the reference for those who write one.

mod allocate;
mod attribute;
mod claims;
mod condition;
mod edits;
mod health;
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
    Directory, Edits, File, Library, LibraryNames, Mask, NamePattern, Node, NodeMode, SoName,
    SoNameTemplate,
};
pub use health::{FileRule, HealthCheck, HealthTest};
pub(crate) use mention::mentions;
pub use path_template::{PathTemplate, PathTemplateError};
pub use prepare::{MAX_CONTAINER_START, MAX_PRE_START, Prepare, Timeout, When};
pub use request::{Normalize, PairSpec, RequestSpec, RequirementSpec};
pub use schema::JSON_SCHEMA;
pub use sharing::{MAX_REPLICAS, ReplicaCount, SHARED_SUFFIX, Sharing};
pub(crate) use short_form::short_or_table;
pub use validate::ClassRuleError;

use crate::config::DeviceFilter;
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

/// # Boathook device class
///
/// The file as a whole.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassSpec {
    /// The schema's version: 1.
    pub version: Version,
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// The extended resource, fixed or by template per device: `domain/name`.
    pub resource: Template,
    /// Whether the plugin offers it unless config.toml says otherwise
    /// (`[class.NAME]` enabled). Without it `true`; classes that divide the
    /// same hardware in another way say `false`.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How a container asks for devices of the class.
    pub request: RequestSpec,
    /// Where the driver has its files, when that is not the host's root, by
    /// template: a directory with a root of its own. config.toml can say
    /// otherwise.
    #[serde(default)]
    pub driver_root: Option<PathTemplate>,
    /// Directories with libraries that the host's ld.so.cache does not have, by
    /// template: hosts without such a cache keep them in various places.
    /// config.toml can add others.
    #[serde(default)]
    pub library_directories: Vec<PathTemplate>,
    /// A pattern for what is there when the driver is loaded. Where nothing
    /// matches, nothing is looked for.
    #[serde(default)]
    pub driver_path: Option<PathPattern>,
    /// Attributes of the host as a whole, such as the driver's version.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// Where devices are found.
    pub discover: Vec<Source>,
    /// What one device is, by templates over its attributes.
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
    /// What a container gets once.
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

/// # `[[discover]]`
///
/// One tree in which devices may be found. The first that has any is the one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "source"))]
pub struct Source {
    /// A pattern; each match is a candidate, and its captures are attributes.
    #[serde(default)]
    pub path: Option<PathPattern>,
    /// Instead of a path: so many virtual devices, with the attribute `index`.
    #[serde(default)]
    pub count: Option<u16>,
    /// These devices come in addition to those of the sources before.
    #[serde(default)]
    pub additional: bool,
    /// The id, by template, of the device that these are parts of. Such a
    /// device is not offered besides them. With `order` they have its index and
    /// are counted by themselves: `0:1` is the second part of device 0.
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
    #[cfg_attr(test, schemars(with = "Vec<short_form::TextOr<Node>>"))]
    pub nodes: Vec<Node>,
    /// What only this source's devices show of masked directories.
    #[serde(default)]
    pub unmask: Vec<PathTemplate>,
    /// What has to hold for this source's devices only.
    #[serde(default)]
    pub health: Vec<HealthCheck>,
}

/// Whether a match may be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum SymlinkRule {
    /// Only a symbolic link is a match.
    Required,
    /// A symbolic link is no match.
    Refused,
}

/// # `[device]`
///
/// What one device is, by templates over its attributes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "device"))]
pub struct DeviceSpec {
    /// The stable id, which should not change with a reboot. Over 63
    /// characters, or with odd ones, it is shortened and a hash is added.
    pub id: Template,
    /// The number that people use for it; devices are sorted by it.
    #[serde(default)]
    pub index: Option<Template>,
    /// Instead of an index: devices are sorted by this and counted from 0.
    #[serde(default)]
    pub order: Option<Template>,
    /// Other names that a request may use. One that several devices have means
    /// all of them.
    #[serde(default)]
    pub aliases: Vec<Template>,
    /// The path where the walk up to the first `numa_node` begins.
    #[serde(default)]
    pub numa: Option<Template>,
    /// Devices with the same value belong together.
    #[serde(default)]
    pub group: Option<Template>,
    /// What has to hold for a device to be healthy.
    #[serde(default)]
    pub health: Vec<HealthCheck>,
    /// The device's nodes: paths, or tables.
    #[serde(default, deserialize_with = "short_form::short_or_table")]
    #[cfg_attr(test, schemars(with = "Vec<short_form::TextOr<Node>>"))]
    pub nodes: Vec<Node>,
    /// What a container with the device sees of masked directories: files and
    /// directories, by template.
    #[serde(default)]
    pub unmask: Vec<PathTemplate>,
    /// Further variables that the plugin gives with the device, by template.
    #[serde(default)]
    pub env: std::collections::BTreeMap<EnvName, Template>,
}

fn yes() -> bool {
    true
}

impl ClassSpec {
    /// Whether a resource of this name could be one of the class's.
    pub fn may_offer(&self, resource: &str) -> bool {
        let is_shared = self
            .sharing
            .as_ref()
            .is_some_and(|sharing| sharing.shared_suffix);
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
        let exceptions = self
            .edits
            .iter()
            .filter_map(|edits| edits.unless_capability.clone());
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

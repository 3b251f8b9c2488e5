//! The schema of a class file. Each type is a table of the file. Single values
//! are checked while they are parsed, so that the message has the line.
//! `docs/class-reference.md` is the reference.

mod allocate;
mod attribute;
mod compatibility;
mod condition;
mod device;
mod edits;
mod file;
mod fixed_resources;
mod health;
mod image_libraries;
mod label;
mod library;
mod links;
mod list_changes;
mod name_owners;
mod need;
mod net_device;
mod node;
mod parts;
mod path_template;
mod prefilter;
mod prepare;
mod property_program;
mod read_paths;
mod report_pattern;
mod request;
mod schema;
mod settings;
mod sharing;
mod source;
mod unmask;
mod validate;

use crate::inserted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

pub use allocate::{Allocate, PlacementPolicy};
pub use attribute::{AttributeSource, ExpectedContent, Origin, Pattern, Text};
pub use compatibility::Compatibility;
pub use condition::{Condition, Expectation};
pub use device::DeviceSpec;
pub use edits::{BitmaskFileSpec, Edits, ListedKind, Mask};
pub use file::{Directory, File, FileKind};
pub use health::{
    ExpectedOutput, FileRule, HealthCheck, HealthProgram, HealthTest, LoggedFaults, OutputPart,
};
pub use image_libraries::ImageLibraries;
pub use label::{Label, LabelName, LabelNameError};
pub use library::{Library, LibraryNamePatterns, NamePattern, SoName, SoNameTemplate};
pub use links::{LinkPeers, Links};
pub use list_changes::ListChanges;
pub use name_owners::{NameConflict, NameOwners};
pub use need::Need;
pub use net_device::NetDevice;
pub use node::{Group, GroupId, Node, NodeCreation, NodeMode, PROC_DEVICES_PATH};
pub(crate) use parts::{MAX_COUNTERS, check_profile, parse_number, parse_placements};
pub use parts::{PartMatchRule, PartProfile, PartStep, WriteStep};
pub(crate) use path_template::is_plain_path;
pub use path_template::{PathTemplate, PathTemplateError};
pub(crate) use prefilter::{find_extended_class, find_request_variable, may_be_requested};
pub use prepare::{MAX_CONTAINER_START_TIME, Prepare, Timeout};
pub use property_program::PropertyProgram;
pub(crate) use property_program::list_word_attributes;
pub use report_pattern::{ReportPattern, skip_report_patterns};
pub use request::{Normalize, PairSpec, RequestSpec, RequirementSpec};
pub use schema::JSON_SCHEMA;
#[cfg(test)]
pub(crate) use schema::generator as schema_generator;
pub use settings::{ClassConfig, DeviceFilter, PodPattern, Replicas, Server};
pub use sharing::{MAX_REPLICAS, ReplicaCount, Sharing};
pub use source::{Source, SymlinkRule, UnclaimedHardware};
pub use unmask::Unmask;

use crate::name::{CapabilityName, ClassName, ResourceName};
use crate::pattern::PathPattern;
use crate::strict_toml::{self, BrokenRule, FileError, Layer};
use crate::template::Template;

/// A class of devices on this host: the validated class file, with the changes of config.toml.
/// After it is loaded, no code reads its class file or its table of config.toml again.
#[derive(Debug, Clone)]
pub struct DeviceClass {
    /// The file's name without `.toml`.
    pub name: ClassName,
    /// The content of the file, with the values that config.toml replaces.
    pub spec: ClassSpec,
    pub settings: ClassConfig,
}

/// # Boathook device class
///
/// The file as a whole.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassSpec {
    /// The class whose file this one extends. Tables are merged key by key; any
    /// other value of this file, also a list, replaces that of the other one. `[add]` and
    /// `[remove]` change its lists.
    pub extends: Option<ClassName>,
    /// With `extends`: items that are added to the end of the other class's lists, by the
    /// same keys: `library_directories`, or `nodes` in `[add.device]`.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, serde_json::Value>"))]
    #[cfg_attr(test, schemars(default))]
    pub add: Option<ListChanges>,
    /// With `extends`: items that are removed from the other class's lists, by the same keys.
    /// A text also means the table that has it as a value, such as its path. A table
    /// means those that have its values; if it has lists, their items are removed from these.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, serde_json::Value>"))]
    #[cfg_attr(test, schemars(default))]
    pub remove: Option<ListChanges>,
    /// The schema's version: 1.
    pub version: Version,
    /// A one-line description for users.
    #[serde(default)]
    pub description: String,
    /// The extended resource, fixed or by template per device: `domain/name`.
    pub resource: Template,
    /// Whether the plugin advertises the class, unless `enabled` in `[class.NAME]` of config.toml
    /// overrides it. Default `true`. Classes that divide the same hardware in another way have
    /// `false`.
    #[serde(default = "default_true", rename = "enabled")]
    pub is_enabled: bool,
    /// Whether `boathook follow` gives a device to its running containers again after it was
    /// unplugged and plugged in. The id of the device must stay the same although its device number
    /// changes. `follow` in `[class.NAME]` of config.toml overrides this key. Default `false`.
    #[serde(default, rename = "follow")]
    pub is_followed: bool,
    /// With `follow`: whether programs in the container that wait for messages of the kernel or of
    /// udev get a message when the device comes or goes, as programs on the host do. `announce` in
    /// `[class.NAME]` of config.toml overrides it. Default `false`.
    #[serde(default, rename = "announce")]
    pub announces_devices: bool,
    /// With `follow`: whether a container that requests a device by its name starts without it
    /// if the host does not have it, and gets it from `boathook follow` when it comes, as with
    /// `NAME?` in the request. `late` in `[class.NAME]` of config.toml overrides it.
    /// Default `false`.
    #[serde(default, rename = "late")]
    pub allows_late_devices: bool,
    /// Linux capabilities that programs need to use the devices. The class gives them to no
    /// container.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOr<Need>>"))]
    pub needs: Vec<Need>,
    /// How a container requests devices of the class.
    pub request: RequestSpec,
    /// The driver's root directory, by template, if it is not the host's root:
    /// a directory with its own `usr`, `etc` and so on, or only with `lib64` or `lib`
    /// and `bin`. config.toml can override it.
    pub driver_root: Option<PathTemplate>,
    /// Directories with libraries that the host's ld.so.cache does not list, by
    /// template. config.toml can add others.
    #[serde(default)]
    pub library_directories: Vec<PathTemplate>,
    /// Patterns for the names of libraries to which a link is also created in the image's
    /// own library directory, for programs that open a path there, or have a loader of
    /// their own. Without this list each library gets a link.
    pub library_links: Option<Vec<NamePattern>>,
    /// Directories with programs of the driver, by template, where they are not at the
    /// path of `binaries`. config.toml can add others.
    #[serde(default)]
    pub program_directories: Vec<PathTemplate>,
    /// A pattern for a path that exists while the driver is loaded. If no path matches, the class
    /// has no devices.
    pub driver_path: Option<PathPattern>,
    /// Programs of the driver that report facts which cannot be read from files.
    #[serde(default, rename = "facts")]
    pub property_programs: Vec<PropertyProgram>,
    /// Attributes of the host, such as the driver's version.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// The directory trees in which devices are found.
    pub discover: Vec<Source>,
    /// Hardware that would be a device if the driver had taken it.
    #[serde(default, rename = "unclaimed")]
    pub unclaimed_hardware: Vec<UnclaimedHardware>,
    /// A device's id, nodes and properties, by templates over its attributes.
    pub device: DeviceSpec,
    /// The choice of devices that the plugin recommends to the kubelet.
    #[serde(default)]
    pub allocate: Allocate,
    /// The number of containers that may have a device at once.
    pub sharing: Option<Sharing>,
    /// A program that prepares a device for a container.
    pub prepare: Option<Prepare>,
    /// The names of another toolkit, under which `boathook-init install --as` offers Boathook.
    pub compatibility: Option<Compatibility>,
    /// Labels of a cluster's node by its devices, for Node Feature Discovery, by the name of the
    /// label. Each resource has one more, with the number of its devices: `RESOURCE.count`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, schema::TextOr<Label>>"))]
    pub labels: BTreeMap<LabelName, Label>,
    /// The amounts, beside slots, that a device has for its `[[parts]]`: by the name of a counter,
    /// such as `compute`, a number by template over the attributes of the device.
    #[serde(default)]
    pub counters: BTreeMap<String, Template>,
    /// Parts of devices, which are made when a claim gets one.
    #[serde(default)]
    pub parts: Vec<PartProfile>,
    /// Nodes and files that a container gets once, regardless of the number of its devices.
    #[serde(default)]
    pub edits: Vec<Edits>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub enum Version {
    One,
}

impl TryFrom<i64> for Version {
    type Error = String;

    fn try_from(version: i64) -> Result<Self, String> {
        match version {
            1 => Ok(Version::One),
            other => Err(format!(
                "version {other} is not known to this program, which reads 1: write that, or \
                 install a newer boathook"
            )),
        }
    }
}

fn default_true() -> bool {
    true
}

impl ClassSpec {
    /// Returns the resource `count_resource` of `[sharing]`, whose quantity on a node is the number
    /// of devices.
    pub fn count_resource(&self) -> Option<ResourceName> {
        let template = self.sharing.as_ref()?.count_resource.as_ref()?;
        ResourceName::try_from(template.to_string()).ok()
    }

    /// Returns whether the class can have a resource of this name.
    pub fn may_offer(&self, resource: &str) -> bool {
        self.resource.matches_filled_text(resource)
    }

    /// Returns the capabilities with which a container gets further nodes or files.
    pub fn capabilities(&self) -> BTreeSet<CapabilityName> {
        let nodes = self.edits.iter().flat_map(|edits| &edits.nodes);
        let sources = self.discover.iter().flat_map(|source| &source.nodes);
        let nodes = nodes.chain(&self.device.nodes).chain(sources);
        let edits = self.edits.iter().map(|edits| &edits.capability);
        let names = edits.chain(nodes.map(|node| &node.capability));
        let names = names.chain([&self.request.capability_32bit]);
        inserted(names.flatten().cloned())
    }

    /// Returns the capabilities that exclude a container from some `[[edits]]`
    /// (`unless_capability`).
    pub fn list_excluding_capabilities(&self) -> BTreeSet<CapabilityName> {
        let exceptions = self
            .edits
            .iter()
            .filter_map(|edits| edits.unless_capability.clone());
        inserted(exceptions)
    }
}

impl DeviceClass {
    /// Parses a class from the text of its file, which extends no other class.
    ///
    /// # Errors
    /// The text is no class file: the error names the line, the key and, for
    /// an unknown key, the nearest one that exists.
    pub fn parse(name: ClassName, path: &Path, text: &str) -> Result<Self, FileError> {
        let extends = None;
        Self::from_layers(
            name,
            &[Layer {
                path,
                text,
                extends,
            }],
        )
    }

    /// Parses a class from its own file and the files that this one extends, directly or through
    /// another file.
    pub(crate) fn from_layers(name: ClassName, layers: &[Layer<'_>]) -> Result<Self, FileError> {
        let spec: ClassSpec = strict_toml::parse_layers(layers)?;
        validate::check(&spec).map_err(|error| FileError::from_broken_rule(layers, &error))?;
        let settings = ClassConfig::default();
        Ok(DeviceClass {
            name,
            spec,
            settings,
        })
    }

    /// Checks the rules that concern several values of the class file and of config.toml together.
    pub(crate) fn check(&self) -> Result<(), BrokenRule> {
        validate::check(&self.spec)?;
        validate::check_filters(&self.spec, &self.settings)
    }
}

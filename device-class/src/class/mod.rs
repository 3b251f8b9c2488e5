//! The schema of a class file: each type in this module is a table or a value of the file. Single
//! values are checked while they are parsed, so that an error names the line.
//! `docs/class-reference.md` describes all keys.

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
mod text_search;
mod unmask;
mod validate;

use crate::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

pub use allocate::{Allocate, PlacementPolicy};
pub use attribute::{AttributeOrigin, AttributeSource, ExpectedContent, RegexPattern, TextSource};
pub use compatibility::Compatibility;
pub use condition::{Condition, ValueConstraint};
pub use device::DeviceSpec;
pub use edits::{BitmaskFileSpec, Edits, ListedKind, Mask};
pub use file::{Directory, File, FileKind};
pub use health::{
    ExpectedOutput, FileRule, HealthCheck, HealthProgram, HealthTest, LoggedFaults, OutputPart,
};
pub use image_libraries::ImageLibraries;
pub use label::{
    Label, LabelName, LabelNameError, REPLICAS_ATTRIBUTE, RESOURCE_ATTRIBUTE, SHARED_ATTRIBUTE,
    SHARED_SUFFIX_ATTRIBUTE,
};
pub use library::{Library, LibraryNamePatterns, NamePattern, SoName, SoNameTemplate};
pub use links::{LinkPeers, Links};
pub use list_changes::ListChanges;
pub use name_owners::{NameConflict, NameOwners};
pub use need::NeededCapability;
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
pub use report_pattern::{ReportPattern, disable_report_patterns};
pub use request::{EnvPairSpec, Normalization, RequestSpec, RequirementSpec};
pub use schema::JSON_SCHEMA;
#[cfg(test)]
pub(crate) use schema::generator as schema_generator;
pub use settings::{ClassConfig, DeviceFilter, PodPattern, Replicas, Server};
pub use sharing::{MAX_REPLICAS, ReplicaCount, Sharing};
pub use source::{Source, SymlinkRule, UnclaimedHardware};
pub use unmask::UnmaskedPath;

use crate::name::{CapabilityName, ClassName, ResourceName};
use crate::pattern::PathPattern;
use crate::strict_toml::{self, FileError, Layer, RuleViolation};
use crate::template::Template;

/// A class of devices on this host: the validated class file with the changes of config.toml. After
/// loading, no code reads the class file or the class's table in config.toml again.
#[derive(Debug, Clone)]
pub struct DeviceClass {
    /// The name of the class file without `.toml`, such as `npu` for `npu.toml`.
    pub name: ClassName,
    /// The content of the class file. Values that config.toml overrides are already replaced.
    pub spec: ClassSpec,
    pub settings: ClassConfig,
}

/// # Boathook device class
///
/// The keys at the top of a class file, and its tables.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassSpec {
    /// The class that this class extends. Tables are merged key by key. Any other value in this
    /// file, also a list, replaces the value of the extended class. `[add]` and `[remove]` change
    /// its lists.
    pub extends: Option<ClassName>,
    /// With `extends`: items to add to lists of the extended class. Each list has the same key as
    /// in that class, such as `library_directories`, or `nodes` in `[add.device]`. The items are
    /// added at the end.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, serde_json::Value>"))]
    #[cfg_attr(test, schemars(default))]
    pub add: Option<ListChanges>,
    /// With `extends`: items to remove from lists of the extended class, with the same keys as in
    /// that class. A text also removes a table that has the text as a value, such as its path. A
    /// table removes each table that has all its values. If a table here has lists, only the items
    /// of these lists are removed from the matching tables.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, serde_json::Value>"))]
    #[cfg_attr(test, schemars(default))]
    pub remove: Option<ListChanges>,
    /// The version of the schema: 1.
    pub version: Version,
    /// A one-line description for users.
    #[serde(default)]
    pub description: String,
    /// The extended resource under which Kubernetes allocates the devices: `domain/name`. It may be
    /// a template that uses the attributes of each device.
    pub resource: Template,
    /// Whether the plugin offers the class. `enabled` in `[class.NAME]` of config.toml overrides
    /// it. Default `true`. It is `false` in classes that divide hardware in another way than a
    /// class with `true`.
    #[serde(default = "default_true", rename = "enabled")]
    pub is_enabled: bool,
    /// Whether `boathook follow`, the daemon that updates running containers, gives a device back
    /// to its containers after it was unplugged and plugged in. The id of the device must then stay
    /// the same although its device number changes. `follow` in `[class.NAME]` of config.toml
    /// overrides this key. Default `false`.
    #[serde(default, rename = "follow")]
    pub is_followed: bool,
    /// With `follow`: whether programs in a container get a message when the device comes or goes,
    /// if they wait for messages of the kernel or of udev as programs on the host do. `announce` in
    /// `[class.NAME]` of config.toml overrides it. Default `false`.
    #[serde(default, rename = "announce")]
    pub announces_devices: bool,
    /// With `follow`: whether a container starts if the host does not have a device that the
    /// container requests by name. `boathook follow` gives it the device when the device comes. A
    /// request can ask for the same with `NAME?`. `late` in `[class.NAME]` of config.toml overrides
    /// it. Default `false`.
    #[serde(default, rename = "late")]
    pub allows_late_devices: bool,
    /// Linux capabilities that programs need to use the devices. Boathook reports if a container
    /// does not have them, but does not give them to any container.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOrTable<NeededCapability>>"))]
    pub needs: Vec<NeededCapability>,
    /// How a container requests devices of the class.
    pub request: RequestSpec,
    /// A template for the driver's root directory, if it is not the root of the host. It is a
    /// directory with its own `usr`, `etc` and so on, or only with `lib64` or `lib` and `bin`.
    /// config.toml can override it.
    pub driver_root: Option<PathTemplate>,
    /// Conditions for `driver_root`, with the keys of `require`, such as a file that exists while
    /// the driver's container runs. If one is not met, the driver's root is the root of the host.
    /// They do not apply to a `driver_root` in config.toml or in a class that extends this one.
    #[serde(default, rename = "driver_root_require")]
    pub driver_root_conditions: Vec<Condition>,
    /// Templates for directories with libraries that are not in the host's ld.so.cache. config.toml
    /// can add others.
    #[serde(default)]
    pub library_directories: Vec<PathTemplate>,
    /// Patterns for the names of libraries. A matching library also gets a link in the image's own
    /// library directory, for programs that open a path there or have a loader of their own.
    /// Without this list, each library gets a link.
    pub library_links: Option<Vec<NamePattern>>,
    /// Templates for directories with programs of the driver. They are searched if a program is not
    /// at the path in `binaries`. config.toml can add others.
    #[serde(default)]
    pub program_directories: Vec<PathTemplate>,
    /// A pattern for a path that exists while the driver is loaded. If no path on the host matches,
    /// the class has no devices.
    pub driver_path: Option<PathPattern>,
    /// Programs of the driver that report facts. Facts are properties of devices that cannot be
    /// read from files.
    #[serde(default, rename = "facts")]
    pub property_programs: Vec<PropertyProgram>,
    /// Attributes of the host, such as the driver's version.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// Where devices are searched on the host.
    pub discover: Vec<Source>,
    /// Hardware that would be a device if its driver were bound to it.
    #[serde(default, rename = "unclaimed")]
    pub unclaimed_hardware: Vec<UnclaimedHardware>,
    /// The id, the nodes and the properties of a device. The templates use the attributes of the
    /// device.
    pub device: DeviceSpec,
    /// The rule by which the plugin recommends devices to the kubelet.
    #[serde(default)]
    pub allocate: Allocate,
    /// Settings to offer one device to several containers, or several devices as one.
    pub sharing: Option<Sharing>,
    /// A program that prepares a device for a container.
    pub prepare: Option<Prepare>,
    /// The names of another vendor's container toolkit that Boathook can replace, with
    /// `boathook-init install --as NAME`.
    pub compatibility: Option<Compatibility>,
    /// Labels of a Kubernetes node, which Node Feature Discovery sets. The key is the name of the
    /// label. Each resource also gets the label `RESOURCE.count` with the number of its devices.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, schema::TextOrTable<Label>>"))]
    pub labels: BTreeMap<LabelName, Label>,
    /// What a device has for its `[[parts]]`, in addition to slots. The key is the name of a
    /// counter, such as `compute`. The value is a template for a number and may use the attributes
    /// of the device.
    #[serde(default)]
    pub counters: BTreeMap<String, Template>,
    /// Parts (partitions) of devices. A part is made when a resource claim needs it.
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
    /// Returns the name of the resource `count_resource` of `[sharing]`. The quantity of this
    /// resource on a node is the number of devices.
    pub fn count_resource(&self) -> Option<ResourceName> {
        let template = self.sharing.as_ref()?.count_resource.as_ref()?;
        ResourceName::try_from(template.to_string()).ok()
    }

    /// Returns whether the class can offer devices under a resource with this name. The class's
    /// resource may be a template, such as `vendor.example/{model}`, which many names match.
    pub fn may_offer(&self, resource: &str) -> bool {
        self.resource.matches_filled_text(resource)
    }

    /// Returns whether config.toml may set `follow = true` for the class. `boathook follow` cannot
    /// recognize, for example, a device whose id has the number of its node.
    pub fn can_be_followed(&self) -> bool {
        let followed_spec = ClassSpec {
            is_followed: true,
            ..self.clone()
        };
        validate::check(&followed_spec).is_ok()
    }

    /// Returns the capabilities that the class defines. A container that requests one gets
    /// additional nodes or files.
    pub fn capabilities(&self) -> BTreeSet<CapabilityName> {
        let nodes = self.edits.iter().flat_map(|edits| &edits.nodes);
        let sources = self.discover.iter().flat_map(|source| &source.nodes);
        let nodes = nodes.chain(&self.device.nodes).chain(sources);
        let edits = self.edits.iter().map(|edits| &edits.capability);
        let names = edits.chain(nodes.map(|node| &node.capability));
        let names = names.chain([&self.request.capability_32bit]);
        collect_by_insertion(names.flatten().cloned())
    }

    /// Returns the capabilities that exclude: a container with one of them does not get the
    /// `[[edits]]` that name it in `unless_capability`.
    pub fn list_excluding_capabilities(&self) -> BTreeSet<CapabilityName> {
        let exceptions = self
            .edits
            .iter()
            .filter_map(|edits| edits.unless_capability.clone());
        collect_by_insertion(exceptions)
    }
}

impl DeviceClass {
    /// Parses a class from the text of its file, which must not extend another class.
    ///
    /// # Errors
    /// The text is not a valid class file. The error names the line, the key and, for an unknown
    /// key, the most similar known key.
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

    /// Parses a class from several files: its own file, and the files that it extends directly or
    /// indirectly.
    pub(crate) fn from_layers(name: ClassName, layers: &[Layer<'_>]) -> Result<Self, FileError> {
        let spec: ClassSpec = strict_toml::parse_layers(layers)?;
        validate::check(&spec).map_err(|error| FileError::from_violation(layers, &error))?;
        Ok(Self::from_valid_spec(name, spec))
    }

    /// Creates a class from a class file that was validated, with default settings, as if
    /// config.toml did not change the class.
    pub(crate) fn from_valid_spec(name: ClassName, spec: ClassSpec) -> Self {
        DeviceClass {
            name,
            spec,
            settings: ClassConfig::default(),
        }
    }

    /// Checks the rules that concern several values, such as a device filter in config.toml that
    /// names an attribute which no device of the class can have.
    pub(crate) fn check(&self) -> Result<(), RuleViolation> {
        validate::check(&self.spec)?;
        validate::check_filters(&self.spec, &self.settings)
    }
}

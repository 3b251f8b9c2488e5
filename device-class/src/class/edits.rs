//! What a container gets: nodes and files, in CDI's sense of container edits.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::image_libraries::ImageLibraries;
use super::path_template::PathTemplate;
#[cfg(test)]
use super::short_form::TextOr;
use super::short_form::short_or_table;
use crate::device::Access;
use crate::name::CapabilityName;
use crate::pattern::PathPattern;
use crate::template::{Attributes, Template};

/// # `[[edits]]`
///
/// What a container gets once, regardless of the number of its devices. Files are
/// mounted read-only, nosuid, nodev, also for the request `none`; nodes are
/// added only with a device.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "edits"))]
pub struct Edits {
    /// Only for a container with this capability.
    #[serde(default)]
    pub capability: Option<CapabilityName>,
    /// Not for a container with this capability.
    #[serde(default)]
    pub unless_capability: Option<CapabilityName>,
    /// Anything in this table may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// The version with which the file names of the libraries must end, by
    /// template.
    #[serde(default)]
    pub library_version: Option<Template>,
    /// Control nodes, such as `/dev/vendorctl`.
    #[serde(default, deserialize_with = "short_or_table")]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<Node>>"))]
    pub nodes: Vec<Node>,
    /// Shared libraries, by soname.
    #[serde(default, deserialize_with = "short_or_table")]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<Library>>"))]
    pub libraries: Vec<Library>,
    /// Additional libraries, by patterns for the names in the host's
    /// ld.so.cache and in `library_directories`: those of drivers that are
    /// newer than the class file. Libraries that are not of `library_version`
    /// are omitted.
    #[serde(default)]
    pub libraries_matching: Option<LibraryNames>,
    /// Directories of the image whose libraries are used instead of the host's
    /// if they are newer.
    #[serde(default)]
    pub image_libraries: Vec<ImageLibraries>,
    /// Executable files.
    #[serde(default, deserialize_with = "short_or_table")]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<File>>"))]
    pub binaries: Vec<File>,
    /// Other files.
    #[serde(default, deserialize_with = "short_or_table")]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<File>>"))]
    pub files: Vec<File>,
    /// Whole directories.
    #[serde(default, deserialize_with = "short_or_table")]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<Directory>>"))]
    pub directories: Vec<Directory>,
    /// Lists on the host with further files and directories: an absolute path
    /// on each line; empty lines and those that begin with `#` are ignored. By
    /// template, with `{list}` for a name in the variable `lists_env`. Only
    /// root may be able to change a list. Paths that the host lacks are omitted.
    #[serde(default)]
    pub files_listed_in: Option<PathTemplate>,
    /// Directories of which the container sees only the listed contents.
    #[serde(default)]
    pub masks: Vec<Mask>,
}

/// Where the kernel lists the drivers of devices with their major numbers.
pub const DRIVERS: &str = "/proc/devices";

/// # `nodes`
///
/// A device node. Short form: its path. It keeps the host's owner and mode
/// unless `mode` or `gid` is set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "node"))]
pub struct Node {
    /// The path on the host, by template.
    pub path: PathTemplate,
    /// Paths that are used instead if the host has them, by template.
    #[serde(default)]
    pub prefer: Vec<PathTemplate>,
    /// A pattern: one node for each match. Templates may use its captures. No
    /// match is not an error.
    #[serde(default)]
    pub for_each: Option<PathPattern>,
    /// Symbolic links that lead to the node, by template, such as those of udev
    /// in `/dev/dri/by-path`. The container gets those that the host has.
    #[serde(default)]
    pub links: Vec<PathTemplate>,
    /// The path in the container, if it differs.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// Only for a container with this capability.
    #[serde(default)]
    pub capability: Option<CapabilityName>,
    /// What the device rule allows: a combination of `r`, `w` and `m`. Default
    /// `rw`.
    #[serde(default)]
    pub access: Access,
    /// The mode in the container, in octal, such as `0660`. With `mode` or
    /// `gid` a new node is created in the container instead of mounting the
    /// host's.
    #[serde(default)]
    pub mode: Option<NodeMode>,
    /// The node's group in the container.
    #[serde(default)]
    pub gid: Option<u32>,
    /// It may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// The driver's name in /proc/devices, by template. While the driver is
    /// loaded, the node is required even if it is optional.
    #[serde(default)]
    pub driver: Option<Template>,
    /// The driver is in the list of block devices, not of character devices.
    #[serde(default)]
    pub block: bool,
    /// What the hook creates in the container if the host has no such node and
    /// the driver is loaded.
    #[serde(default)]
    pub make: Option<Make>,
    /// What the administrator should do if the node is missing; appended to the
    /// message.
    #[serde(default)]
    pub advice: Option<String>,
}

/// # `make`
///
/// A node that the hook creates in the container's own `/dev` while the host has
/// none: with the major number that `driver` has in /proc/devices. Not possible in
/// a container with a user namespace, which is refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "make"))]
pub struct Make {
    /// The minor number, by template.
    pub minor: Template,
    /// The mode, in octal. Default `0660`, or the node's `mode`.
    #[serde(default)]
    pub mode: Option<NodeMode>,
    /// The group in the container. Default 0, or the node's `gid`.
    #[serde(default)]
    pub gid: Option<u32>,
}

/// # `libraries`
///
/// A shared library. Short form: its soname. It is located by the ld.so.cache
/// of the host or of the driver's root.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "library"))]
pub struct Library {
    /// The soname, by template.
    pub soname: SoNameTemplate,
    /// Additional names for it, such as the one without a version.
    #[serde(default)]
    pub links: Vec<SoName>,
    /// It may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// # `libraries_matching`
///
/// Additional libraries, by patterns for the names in the host's ld.so.cache
/// and in `library_directories`: those of drivers that are newer than the class
/// file. Libraries that are not of `library_version` are omitted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "library_names"))]
pub struct LibraryNames {
    /// Patterns, one of which must match.
    pub names: Vec<NamePattern>,
    /// Patterns, none of which may match.
    #[serde(default)]
    pub except: Vec<NamePattern>,
}

impl LibraryNames {
    /// Whether a library of this name is meant.
    pub(crate) fn fit(&self, name: &str) -> bool {
        let fits = |pattern: &NamePattern| pattern.fits(name);
        self.names.iter().any(fits) && !self.except.iter().any(fits)
    }
}

/// A pattern for file names, such as `libx-*.so.1`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct NamePattern(PathPattern);

impl NamePattern {
    fn fits(&self, name: &str) -> bool {
        let component = self.0.components().first();
        component.is_some_and(|component| component.matches(name, &Attributes::new()).is_some())
    }
}

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let pattern = PathPattern::try_from(format!("/{text}")).map_err(|e| e.to_string())?;
        let plain = pattern.components().len() == 1 && pattern.captures().next().is_none();
        match plain {
            true => Ok(NamePattern(pattern)),
            false => Err(format!("`{text}` is not a pattern for the name of a file")),
        }
    }
}

/// # `files, binaries`
///
/// A single file. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "file"))]
pub struct File {
    /// The path on the host (in the driver's root, if there is one), by
    /// template.
    pub path: PathTemplate,
    /// `file` (the default), or `socket` for that of a daemon. Nothing else is
    /// accepted at the path.
    #[serde(default, rename = "type")]
    pub kind: FileKind,
    /// Alternative paths on the host, by template, tried in this order if
    /// `path` does not exist. The path in the container stays the same.
    #[serde(default)]
    pub fallbacks: Vec<PathTemplate>,
    /// A pattern: one file for each match. Templates may use its captures.
    #[serde(default)]
    pub for_each: Option<PathPattern>,
    /// The path in the container, if it differs.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// It may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// What is at the path of a [`File`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum FileKind {
    #[default]
    File,
    Socket,
}

/// # `directories`
///
/// A whole directory. Short form: its path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "directory"))]
pub struct Directory {
    /// The path on the host (in the driver's root, if there is one), by
    /// template.
    pub path: PathTemplate,
    /// The path in the container, if it differs.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// Whether the container's loader finds the libraries in it.
    #[serde(default)]
    pub libraries: bool,
    /// Whether the container may write to it, as far as its user may on the
    /// host. Without it, the directory is read-only.
    #[serde(default)]
    pub writable: bool,
    /// It may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// The name under which a library is loaded: a file name, no path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct SoName(String);

impl SoName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SoName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
        if name.contains(".so") && name.len() < 256 && name.chars().all(plain) {
            Ok(SoName(name))
        } else {
            let name = crate::name::excerpt(&name);
            Err(format!(
                "`{name}` is not the name of a shared library, such as libx.so.1; for a path use \
                 `directories` with `libraries = true`"
            ))
        }
    }
}

/// The permission bits of a node, written in octal: `0660`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeMode(u32);

impl NodeMode {
    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl TryFrom<String> for NodeMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match u32::from_str_radix(&text, 8) {
            Ok(bits @ 0..=0o777) => Ok(NodeMode(bits)),
            _ => Err(format!(
                "mode `{text}` is not an octal number from 0000 to 0777"
            )),
        }
    }
}

/// A template for a [`SoName`]: some have the driver's version in them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SoNameTemplate(Template);

impl SoNameTemplate {
    /// The name with its attributes in place.
    pub fn fill(&self, attributes: &Attributes) -> Result<SoName, String> {
        let filled = self.0.fill(attributes).map_err(|e| e.to_string())?;
        SoName::try_from(filled)
    }

    /// The template behind it.
    pub fn template(&self) -> &Template {
        &self.0
    }
}

impl TryFrom<String> for SoNameTemplate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let template = Template::try_from(text.clone()).map_err(|e| e.to_string())?;
        if template.attributes().next().is_none() {
            SoName::try_from(text)?;
        }
        Ok(SoNameTemplate(template))
    }
}

/// # `masks`
///
/// A directory that exists in every container, such as one of /proc, and whose
/// contents are to be hidden. A read-only tmpfs covers it. In it are the
/// `copies`, and the files and directories of the container's devices
/// (`unmask`). Nothing is done if the container has no such directory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "mask"))]
pub struct Mask {
    /// The directory, by template; the path is the same on the host and in the
    /// container.
    pub path: PathTemplate,
    /// Files in the directory of which the container gets a copy, made when it
    /// starts, by template. A file that the host lacks is omitted.
    #[serde(default)]
    pub copies: Vec<PathTemplate>,
    /// Lines `key: value` of the copies whose value is replaced.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

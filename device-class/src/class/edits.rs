//! What a container gets: nodes and files, in CDI's sense of container edits.

use std::collections::BTreeMap;

use serde::Deserialize;

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
/// What a container gets once, whatever the number of its devices: read-only,
/// nosuid, nodev. Nodes only with a device; files also for a request of `none`.
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
    /// Everything in this table may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// The version with which the names of the libraries' files have to end, by
    /// template.
    #[serde(default)]
    pub library_version: Option<Template>,
    /// Control nodes.
    #[serde(default, deserialize_with = "short_or_table")]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<Node>>"))]
    pub nodes: Vec<Node>,
    /// Libraries.
    #[serde(default, deserialize_with = "short_or_table")]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<Library>>"))]
    pub libraries: Vec<Library>,
    /// Further libraries, by patterns of the names in the host's ld.so.cache
    /// and the class's library_directories: those of a driver that is newer
    /// than the class file. Ones that are not of `library_version` are left
    /// out.
    #[serde(default)]
    pub libraries_matching: Option<LibraryNames>,
    /// Programs.
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
    /// Directories of which the container sees no more than is named.
    #[serde(default)]
    pub masks: Vec<Mask>,
}

/// # `nodes`
///
/// A device node. Short form: its path. It keeps the host's owner and mode,
/// unless `mode` or `gid` say otherwise.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "node"))]
pub struct Node {
    /// Where the host has it, by template.
    pub path: PathTemplate,
    /// Paths that are taken in its stead where the host has them.
    #[serde(default)]
    pub prefer: Vec<PathTemplate>,
    /// A pattern: one node for each match, whose captures the templates may
    /// use. No match is no error.
    #[serde(default)]
    pub for_each: Option<PathPattern>,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// Only for a container with this capability.
    #[serde(default)]
    pub capability: Option<CapabilityName>,
    /// What the device rule allows, of `r`, `w` and `m`. Without it `rw`.
    #[serde(default)]
    pub access: Access,
    /// The permission bits that the container's users see, in octal, such as
    /// `0660`. With this or `gid` the container gets a node of its own and not
    /// the host's.
    #[serde(default)]
    pub mode: Option<NodeMode>,
    /// The group that the container's users see.
    #[serde(default)]
    pub gid: Option<u32>,
    /// It may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// The name of its driver in /proc/devices. While that is loaded, the node
    /// is required even if it is optional.
    #[serde(default)]
    pub driver: Option<String>,
    /// What to do on a host without the node: the end of the message.
    #[serde(default)]
    pub advice: Option<String>,
}

/// # `libraries`
///
/// A shared library. Short form: its soname. It is found in the host's (or
/// driver root's) ld.so.cache.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "library"))]
pub struct Library {
    /// The name under which programs load it, by template.
    pub soname: SoNameTemplate,
    /// Further names for it, such as the one without a version.
    #[serde(default)]
    pub links: Vec<SoName>,
    /// It may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// # `libraries_matching`
///
/// Further libraries, by patterns of the names in the host's ld.so.cache and
/// the class's library_directories: those of a driver that is newer than the
/// class file. Ones that are not of `library_version` are left out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "library_names"))]
pub struct LibraryNames {
    /// Patterns, one of which has to match.
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
/// A single file; a socket is one, too. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "file"))]
pub struct File {
    /// Where the host (or the driver's root) has it, by template.
    pub path: PathTemplate,
    /// Paths at which some hosts have it instead, by template, the first first.
    /// The container still gets it under its own path.
    #[serde(default)]
    pub fallbacks: Vec<PathTemplate>,
    /// A pattern: one file for each match, whose captures the templates may
    /// use.
    #[serde(default)]
    pub for_each: Option<PathPattern>,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// It may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// # `directories`
///
/// A whole directory. Short form: its path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "directory"))]
pub struct Directory {
    /// Where the host (or the driver's root) has it, by template.
    pub path: PathTemplate,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// The container's loader finds the libraries in it.
    #[serde(default)]
    pub libraries: bool,
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
                "`{name}` is not the name of a shared library, such as libx.so.1"
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
    ///
    /// # Errors
    /// An attribute is missing, or makes the name none.
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
/// A directory that the container has anyway, such as one of /proc, and of
/// which it is to see no more than is named: a read-only tmpfs covers it, with
/// copies of files, and with what the container's devices show (`unmask`). Where
/// the container has no such directory nothing is done.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "mask"))]
pub struct Mask {
    /// The directory, by template: the same on the host and in the container.
    pub path: PathTemplate,
    /// Files in it whose text the container gets as it is when it starts, by
    /// template. One that the host lacks is not there.
    #[serde(default)]
    pub copies: Vec<PathTemplate>,
    /// Lines `key: value` of the copies that say something else.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

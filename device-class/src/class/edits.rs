//! What a container gets: nodes and files, in CDI's sense of container edits.

use serde::Deserialize;

use super::mask::Mask;
use super::path_template::PathTemplate;
use super::short_form::short_or_table;
use crate::device::Access;
use crate::name::CapabilityName;
use crate::pattern::PathPattern;
use crate::template::{Attributes, Template};

/// `[[edits]]`: what a container gets once.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edits {
    /// Only for a container with this capability; without it for all.
    #[serde(default)]
    pub capability: Option<CapabilityName>,
    /// Not for a container with this capability.
    #[serde(default)]
    pub unless: Option<CapabilityName>,
    /// Whether everything in this table may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// The version with which the names of the libraries' files have to end:
    /// a host may have more than one version lying about.
    #[serde(default)]
    pub library_version: Option<Template>,
    /// Control nodes. A container that gets no device gets none of them.
    #[serde(default, deserialize_with = "short_or_table")]
    pub nodes: Vec<Node>,
    /// Libraries, by the soname under which the host's ld.so.cache has them.
    #[serde(default, deserialize_with = "short_or_table")]
    pub libraries: Vec<Library>,
    /// Further libraries, by patterns of their names.
    #[serde(default)]
    pub libraries_matching: Option<LibraryNames>,
    /// Programs; they keep their path.
    #[serde(default, deserialize_with = "short_or_table")]
    pub binaries: Vec<File>,
    /// Other files; they keep their path unless one is given.
    #[serde(default, deserialize_with = "short_or_table")]
    pub files: Vec<File>,
    /// Whole directories; they keep their path unless one is given.
    #[serde(default, deserialize_with = "short_or_table")]
    pub directories: Vec<Directory>,
    /// Directories of which the container sees no more than is named.
    #[serde(default)]
    pub masks: Vec<Mask>,
}

/// A device node. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Where the host has it.
    pub path: PathTemplate,
    /// Paths that are taken in its stead where the host has them, the first
    /// first; the container still gets the node under its own path.
    #[serde(default)]
    pub prefer: Vec<PathTemplate>,
    /// One node for each path that matches; the captures serve the templates.
    #[serde(default)]
    pub each: Option<PathPattern>,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// Only for a container with this capability.
    #[serde(default)]
    pub capability: Option<CapabilityName>,
    /// What the device rule allows.
    #[serde(default)]
    pub access: Access,
    /// The permission bits that the container's users see. With this or `gid`
    /// the container gets a node of its own and not the host's.
    #[serde(default)]
    pub mode: Option<NodeMode>,
    /// The group that the container's users see.
    #[serde(default)]
    pub gid: Option<u32>,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// The name of its driver in /proc/devices: an optional node is required
    /// while the driver is loaded.
    #[serde(default)]
    pub driver: Option<String>,
    /// What an administrator does when the host does not have it.
    #[serde(default)]
    pub advice: Option<String>,
}

/// A library. Short form: its soname.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// The name under which programs load it, by template.
    pub soname: SoNameTemplate,
    /// Further names for it, such as the one without a version.
    #[serde(default)]
    pub links: Vec<SoName>,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// Libraries by their names: those of a driver that is newer than the class file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// A single file. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Where the host (or the driver's root) has it.
    pub path: PathTemplate,
    /// Paths at which some hosts have it instead, the first first; the container still
    /// gets the file under its own path.
    #[serde(default)]
    pub fallbacks: Vec<PathTemplate>,
    /// One file for each path that matches; the captures serve the templates.
    #[serde(default)]
    pub each: Option<PathPattern>,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// A whole directory. Short form: its path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// Where the host (or the driver's root) has it.
    pub path: PathTemplate,
    /// Where the container gets it, if elsewhere.
    #[serde(default)]
    pub container_path: Option<PathTemplate>,
    /// Whether its libraries are to be found by the container's loader.
    #[serde(default)]
    pub libraries: bool,
    /// Whether it may be missing on the host.
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

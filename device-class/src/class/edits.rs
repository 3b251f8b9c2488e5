//! The nodes and files that a container gets. CDI calls them container edits.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::image_libraries::ImageLibraries;
use super::path_template::PathTemplate;
#[cfg(test)]
use super::schema::TextOr;
use super::{Directory, File, Library, LibraryNamePatterns, Node};
use crate::name::CapabilityName;
use crate::template::Template;

/// # `[[edits]]`
///
/// Nodes and files that a container gets once, regardless of the number of its devices. Files are
/// mounted read-only, nosuid, nodev, also for the request `none`; nodes are added only with a
/// device.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "edits"))]
pub struct Edits {
    /// The capability that a container must have to get these edits.
    pub capability: Option<CapabilityName>,
    /// A container that has this capability does not get these edits.
    pub unless_capability: Option<CapabilityName>,
    /// Whether everything in this table may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// The version with which the file names of the libraries must end, by
    /// template.
    pub library_version: Option<Template>,
    /// Control nodes, such as `/dev/vendorctl`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<Node>>"))]
    pub nodes: Vec<Node>,
    /// Shared libraries, by soname.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<Library>>"))]
    pub libraries: Vec<Library>,
    /// Additional libraries, by patterns for the names in the host's ld.so.cache and in
    /// `library_directories`. They include libraries of drivers that are newer than the class file.
    /// Libraries that are not of `library_version` are omitted.
    pub libraries_matching: Option<LibraryNamePatterns>,
    /// Directories of the image whose libraries are used instead of the host's
    /// if they are newer.
    #[serde(default)]
    pub image_libraries: Vec<ImageLibraries>,
    /// Executable files. None is required: the container gets the programs that the host has at
    /// these paths or in `program_directories`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<File>>"))]
    pub binaries: Vec<File>,
    /// Other files.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<File>>"))]
    pub files: Vec<File>,
    /// Whole directories.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOr<Directory>>"))]
    pub directories: Vec<Directory>,
    /// Lists on the host with further files and directories: an absolute path
    /// on each line; empty lines and those that begin with `#` are ignored. By
    /// template, with `{list}` for a name in the variable `lists_env`. Only
    /// root may be able to change a list. Paths that the host lacks are omitted.
    #[serde(rename = "files_listed_in")]
    pub file_list_path: Option<PathTemplate>,
    /// The lines of these lists are `kind, path`. This table has the meaning of each kind: `node`
    /// for a device node, `path` for a file or directory. Other lines are ignored, and nodes that
    /// the host lacks are omitted.
    #[serde(default)]
    pub listed_kinds: BTreeMap<String, ListedKind>,
    /// Directories of which the container sees only the listed contents.
    #[serde(default)]
    pub masks: Vec<Mask>,
}

/// The kind of file that a line of a list in `files_listed_in` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum ListedKind {
    Node,
    Path,
}

/// # `masks`
///
/// A directory of the container, such as one of /proc, whose contents are hidden by a read-only
/// tmpfs. The tmpfs has the `copies`, the `texts`, and the files and directories of the container's
/// devices (`unmask`). If the container has no such directory, it is created for `texts`; without
/// `texts` nothing is done.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "mask"))]
pub struct Mask {
    /// The directory, by template; the path is the same on the host and in the
    /// container.
    pub path: PathTemplate,
    /// Files in the directory of which the container gets a copy, by template. The copy is made
    /// when the container starts. A file that the host lacks is omitted.
    #[serde(default)]
    pub copies: Vec<PathTemplate>,
    /// The new values of lines `key: value` in the copies, by key.
    #[serde(default, rename = "set")]
    pub replaced_values: BTreeMap<String, String>,
    /// Files that are written for the container's devices. A container without a device gets none.
    #[serde(default, rename = "texts")]
    pub bitmask_files: Vec<BitmaskFileSpec>,
}

/// # `texts`
///
/// A file in a masked directory whose content has a bit mask with one bit for each device of the
/// container.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "text"))]
pub struct BitmaskFileSpec {
    /// The path of the file, by template.
    pub path: PathTemplate,
    /// The text of the file, in which `BITS` is replaced by the bits of all devices, in
    /// hexadecimal.
    #[serde(rename = "text")]
    pub content: String,
    /// The number of the bit of a device, from 0 to 63, by template over its attributes. A device
    /// with another number has no bit.
    #[serde(rename = "bit")]
    pub bit_number: Template,
}

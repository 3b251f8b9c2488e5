//! The device nodes and files that a container gets (`[[edits]]`). CDI calls them container edits.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::image_libraries::ImageLibraries;
use super::path_template::PathTemplate;
#[cfg(test)]
use super::schema::TextOrTable;
use super::{Directory, File, Library, LibraryNamePatterns, Node};
use crate::name::CapabilityName;
use crate::template::Template;

/// # `[[edits]]`
///
/// Nodes and files that a container gets once, regardless of the number of its devices. Files are
/// mounted read-only, nosuid and nodev. A container gets them even if it requests `none`; it gets
/// nodes only with a device.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "edits"))]
pub struct Edits {
    /// Only a container with this capability gets the nodes and files of this table.
    pub capability: Option<CapabilityName>,
    /// A container with this capability does not get the nodes and files of this table.
    pub unless_capability: Option<CapabilityName>,
    /// Whether all nodes and files of this table are optional: if the host does not have one of
    /// them, it is left out.
    #[serde(default)]
    pub optional: bool,
    /// A template for the version with which the libraries' file names must end.
    pub library_version: Option<Template>,
    /// Nodes that control the driver and belong to no single device, such as `/dev/vendorctl`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOrTable<Node>>"))]
    pub nodes: Vec<Node>,
    /// Shared libraries. A library is named by its soname.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOrTable<Library>>"))]
    pub libraries: Vec<Library>,
    /// Patterns that select additional libraries by name, from the host's ld.so.cache and from
    /// `library_directories`. So a container also gets the libraries of drivers that are newer than
    /// the class file. With `library_version`, libraries of another version are left out.
    pub libraries_matching: Option<LibraryNamePatterns>,
    /// Directories of the image whose libraries are used instead of the host's if they are newer.
    #[serde(default)]
    pub image_libraries: Vec<ImageLibraries>,
    /// Programs. None of them is required: a container gets those that the host has at these paths
    /// or in `program_directories`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOrTable<File>>"))]
    pub binaries: Vec<File>,
    /// Other files.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOrTable<File>>"))]
    pub files: Vec<File>,
    /// Directories that the container gets with everything in them.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<TextOrTable<Directory>>"))]
    pub directories: Vec<Directory>,
    /// A template for the paths of list files on the host. `{list}` stands for a name in the
    /// variable `lists_env`. Each line of a list file is the absolute path of a file or directory
    /// that the container gets; empty lines and lines that begin with `#` are ignored. Paths that
    /// do not exist on the host are left out. If users other than root can change a list file, the
    /// container is refused.
    #[serde(rename = "files_listed_in")]
    pub file_list_path: Option<PathTemplate>,
    /// The kinds of lines in list files whose lines have the form `kind, path`. For each kind, the
    /// value says what the path is: `node` for a device node, `path` for a file or directory. Lines
    /// of other kinds are ignored, and nodes that the host does not have are left out.
    #[serde(default)]
    pub listed_kinds: BTreeMap<String, ListedKind>,
    /// Directories whose contents are hidden from the container, except for what the mask lists.
    #[serde(default)]
    pub masks: Vec<Mask>,
}

/// The kind of entry that each line of a list file names (`files_listed_in`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum ListedKind {
    Node,
    Path,
}

/// # `masks`
///
/// A directory whose contents are hidden from the container, such as a directory in /proc. The hook
/// mounts a read-only tmpfs over it. The tmpfs contains the `copies`, the `texts`, and the files
/// and directories of the container's devices (`unmask`). If the container does not have the
/// directory, it is created for `texts`; without `texts` nothing is done.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "mask"))]
pub struct Mask {
    /// A template for the path of the directory. The path is the same on the host and in the
    /// container.
    pub path: PathTemplate,
    /// Templates for files in the directory that the container gets as copies. A copy is made when
    /// the container starts. A file that the host does not have is left out.
    #[serde(default)]
    pub copies: Vec<PathTemplate>,
    /// New values for lines `key: value` in the copies. The key here is the key of the line.
    #[serde(default, rename = "set")]
    pub replaced_values: BTreeMap<String, String>,
    /// Files that are written for the devices of the container. A container without a device does
    /// not get them.
    #[serde(default, rename = "texts")]
    pub bitmask_files: Vec<BitmaskFileSpec>,
}

/// # `texts`
///
/// A file in a masked directory. It contains a bit mask that has one bit for each device of the
/// container.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "text"))]
pub struct BitmaskFileSpec {
    /// A template for the path of the file.
    pub path: PathTemplate,
    /// The text of the file. `BITS` is replaced by the bit mask in hexadecimal.
    #[serde(rename = "text")]
    pub content: String,
    /// A template for the position of a device's bit, from 0 to 63. It may use the attributes of
    /// the device. A device with any other position has no bit.
    #[serde(rename = "bit")]
    pub bit_number: Template,
}

//! Files, sockets and directories of the host that a container gets.

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::pattern::PathPattern;

/// # `files, binaries`
///
/// A single file that the container gets. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "file"))]
pub struct File {
    /// A template for the path on the host. If the driver has a root directory of its own, the path
    /// is below that directory.
    pub path: PathTemplate,
    /// The kind of file: `file` (the default), or `socket` for the socket of a daemon. A file of
    /// another kind at the path is an error.
    #[serde(default, rename = "type")]
    pub kind: FileKind,
    /// Templates for alternative paths on the host. They are tried in this order if `path` does not
    /// exist, or if there is a script where a program is expected. The path in the container stays
    /// the same.
    #[serde(default)]
    pub fallbacks: Vec<PathTemplate>,
    /// A pattern of host paths. The container gets one file for each matching path. Templates may
    /// use the attributes that the pattern captures.
    #[serde(rename = "for_each")]
    pub path_pattern: Option<PathPattern>,
    /// The path in the container, if it differs from `path`.
    pub container_path: Option<PathTemplate>,
    /// With `type = "socket"`: whether the socket is mounted writable. If it is, an engine in the
    /// container can mount the socket into its own containers, and root in the container may change
    /// the socket's mode and owner. Programs can connect to the socket in any case. Files are
    /// always read-only.
    #[serde(default)]
    pub writable: bool,
    /// Whether the container also gets the libraries that the file names by absolute paths, such as
    /// a manifest of Vulkan, at these paths. Libraries that the host lacks are omitted.
    #[serde(default)]
    pub names_libraries: bool,
    /// Whether the file is a module that a library of the image looks for beside itself, such as a
    /// backend of GBM. If the path in the container is in a directory within a library directory of
    /// another distribution, the library directory of the image takes its place. A CDI file without
    /// the hook has the path as it is.
    #[serde(default, rename = "beside_image_libraries")]
    pub is_image_module: bool,
    /// Whether the file may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

/// The kind of file at the path of a [`File`].
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
/// A whole directory that the container gets. Short form: its path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "directory"))]
pub struct Directory {
    /// A template for the path on the host. If the driver has a root directory of its own, the path
    /// is below that directory.
    pub path: PathTemplate,
    /// The path in the container, if it differs from `path`.
    pub container_path: Option<PathTemplate>,
    /// Whether the container's dynamic loader searches this directory for libraries.
    #[serde(default)]
    pub libraries: bool,
    /// Whether the container may write to the directory. The permissions of the host's files still
    /// apply. By default the directory is mounted read-only.
    #[serde(default)]
    pub writable: bool,
    /// Whether the directory may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

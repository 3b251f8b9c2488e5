//! Files, sockets and directories of the host.

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::pattern::PathPattern;

/// # `files, binaries`
///
/// A single file. Short form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "file"))]
pub struct File {
    /// The path on the host (in the driver's root, if there is one), by
    /// template.
    pub path: PathTemplate,
    /// The kind of file: `file` (the default), or `socket` for the socket of a daemon. A file of
    /// another kind at the path is an error.
    #[serde(default, rename = "type")]
    pub kind: FileKind,
    /// Alternative paths on the host, by template, tried in this order if
    /// `path` does not exist, or is a script in the place of a program. The
    /// path in the container stays the same.
    #[serde(default)]
    pub fallbacks: Vec<PathTemplate>,
    /// A pattern of host paths. The container gets one file for each matching path, and templates
    /// may use the captures of the match.
    #[serde(rename = "for_each")]
    pub path_pattern: Option<PathPattern>,
    /// The path in the container, if it differs from `path`.
    pub container_path: Option<PathTemplate>,
    /// With `type = "socket"`: whether the mount is writable. Then an engine in the container can
    /// give the socket to containers of its own, and root in the container may change its mode and
    /// owner. Programs can connect to the socket in any case. Files are always read-only.
    #[serde(default)]
    pub writable: bool,
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
/// A whole directory. Short form: its path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "directory"))]
pub struct Directory {
    /// The path on the host (in the driver's root, if there is one), by
    /// template.
    pub path: PathTemplate,
    /// The path in the container, if it differs from `path`.
    pub container_path: Option<PathTemplate>,
    /// Whether the container's loader searches the directory for libraries.
    #[serde(default)]
    pub libraries: bool,
    /// Whether the container may write to the directory, as far as its user may write on the host.
    /// By default the directory is read-only.
    #[serde(default)]
    pub writable: bool,
    /// Whether the directory may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

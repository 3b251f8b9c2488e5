//! Files and directories that stay visible in a masked directory (`unmask`).

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::pattern::PathPattern;

/// # `unmask`
///
/// A file or directory that a container with the device sees although it is in a directory of
/// `masks`, whose contents are hidden. A symbolic link in /sys/class or /sys/bus becomes the same
/// symbolic link in the container. Short form: its path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "unmask"))]
pub struct UnmaskedPath {
    /// A template for the path. The path is the same on the host and in the container.
    pub path: PathTemplate,
    /// A pattern of host paths. The container sees each matching path; it is not an error if none
    /// matches. Templates may use the attributes that the pattern captures.
    #[serde(rename = "for_each")]
    pub path_pattern: Option<PathPattern>,
    /// Whether the file or directory may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

//! Contents of masked directories that a container with a device sees.

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::pattern::PathPattern;

/// # `unmask`
///
/// A file or directory in a masked directory that a container with the device sees nevertheless. A
/// symbolic link in /sys/class or /sys/bus is the same link in the container. Short form: its path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "unmask"))]
pub struct Unmask {
    /// The path, by template; it is the same on the host and in the container.
    pub path: PathTemplate,
    /// A pattern of host paths. The container sees one entry for each matching path, and templates
    /// may use the captures of the match. It is not an error if nothing matches.
    #[serde(rename = "for_each")]
    pub path_pattern: Option<PathPattern>,
    /// Whether the file or directory may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

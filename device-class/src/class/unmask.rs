//! Contents of masked directories that a container with a device sees.

use serde::Deserialize;

use super::path_template::PathTemplate;
use crate::pattern::PathPattern;

/// # `unmask`
///
/// A file or directory of a masked directory. A link of /sys/class or /sys/bus is the same link
/// in the container. Short form: its path.
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
    /// A pattern: one path for each match. Templates may use its captures. No match is not an
    /// error.
    pub for_each: Option<PathPattern>,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

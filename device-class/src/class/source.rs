//! The directory trees in which devices are searched (`[[discover]]`), and the hardware that is
//! reported if its driver has not taken it (`[[unclaimed]]`).

use serde::Deserialize;

#[cfg(test)]
use super::schema;
use super::{AttributeSource, Condition, HealthCheck, Node, Unmask};
use crate::pattern::PathPattern;
use crate::template::Template;

/// # `[[discover]]`
///
/// A directory tree in which devices are searched. The first table that finds at least one device
/// is used.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "source"))]
pub struct Source {
    /// A pattern of host paths. Each matching path is a candidate, and the captures of the match
    /// are attributes.
    pub path: Option<PathPattern>,
    /// Instead of a path: the number of virtual devices, which have the
    /// attribute `index`.
    #[serde(rename = "count")]
    pub virtual_device_count: Option<u16>,
    /// Whether the devices of this source are added to those of the previous sources.
    #[serde(default, rename = "additional")]
    pub is_additional: bool,
    /// The id, by template, of the device that these devices are parts of. A
    /// device with parts is not advertised. With `order`, parts have the index
    /// of the whole device and are numbered: `0:1` is the second part of device
    /// 0.
    pub part_of: Option<Template>,
    /// With `part_of`: whether a request may still name the whole device. Such a request gets the
    /// device without its parts.
    #[serde(default, rename = "keeps_whole")]
    pub can_request_whole_device: bool,
    /// Whether the match must be a symbolic link, or must not be one.
    #[serde(rename = "symlink")]
    pub symlink_rule: Option<SymlinkRule>,
    /// The attributes of each candidate, read in this order.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// Conditions that a candidate must meet to be a device.
    #[serde(default)]
    pub require: Vec<Condition>,
    /// Nodes of this source's devices only.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOr<Node>>"))]
    pub nodes: Vec<Node>,
    /// Contents of masked directories that are visible with this source's
    /// devices only.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOr<Unmask>>"))]
    pub unmask: Vec<Unmask>,
    /// Health checks of this source's devices only.
    #[serde(default)]
    pub health: Vec<HealthCheck>,
}

/// # `[[unclaimed]]`
///
/// Hardware that would be a device if the driver had taken it. `boathook list`, `check` and
/// `doctor` report each match.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "unclaimed"))]
pub struct UnclaimedHardware {
    /// A pattern of host paths. The captures of a match are attributes.
    pub path: PathPattern,
    /// The attributes of each match, read in this order. A match that lacks one is left out.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// Conditions that a match must meet to be reported.
    #[serde(default)]
    pub require: Vec<Condition>,
    /// The text of the report: the problem, and the action that the administrator should take.
    /// `{name}` is replaced by an attribute.
    pub report: Template,
}

/// A rule for the path that a pattern matches: whether it must or must not be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum SymlinkRule {
    /// A match must be a symbolic link.
    Required,
    /// Symbolic links do not match.
    Refused,
}

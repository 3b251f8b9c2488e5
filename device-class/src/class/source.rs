//! Where devices are searched on a host (`[[discover]]`), and which hardware is reported if its
//! driver is not bound to it (`[[unclaimed]]`).

use serde::Deserialize;

#[cfg(test)]
use super::schema;
use super::{AttributeSource, Condition, HealthCheck, Node, UnmaskedPath};
use crate::pattern::PathPattern;
use crate::template::Template;

/// # `[[discover]]`
///
/// A directory tree in which devices are searched. Of several tables, the first one that finds a
/// device is used.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "source"))]
pub struct Source {
    /// A pattern of host paths. Each matching path is a candidate for a device. What the pattern
    /// captures becomes attributes of the candidate.
    pub path: Option<PathPattern>,
    /// Instead of a path: the number of virtual devices. Each of them has the attribute `index`.
    #[serde(rename = "count")]
    pub virtual_device_count: Option<u16>,
    /// Whether the devices of this table are added to those that an earlier table has found.
    #[serde(default, rename = "additional")]
    pub is_additional: bool,
    /// A template for the id of a whole device. The devices of this table are parts (partitions) of
    /// it. A device that has parts is not offered itself. With `order`, the index of a part is that
    /// of the whole device and a number: `0:1` is the second part of device 0.
    pub part_of: Option<Template>,
    /// With `part_of`: whether a request may still name the whole device. Such a request gets the
    /// device without its parts.
    #[serde(default, rename = "keeps_whole")]
    pub can_request_whole_device: bool,
    /// Whether a matching path must be a symbolic link, or must not be one.
    #[serde(rename = "symlink")]
    pub symlink_rule: Option<SymlinkRule>,
    /// The attributes of each candidate. They are read in this order.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// Conditions that a candidate must meet to be a device.
    #[serde(default)]
    pub require: Vec<Condition>,
    /// Nodes of the devices that this table finds, in addition to `nodes` of `[device]`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOrTable<Node>>"))]
    pub nodes: Vec<Node>,
    /// Files and directories in masked directories that are visible to containers with a device of
    /// this table.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOrTable<UnmaskedPath>>"))]
    pub unmask: Vec<UnmaskedPath>,
    /// Health checks for the devices that this table finds, in addition to `health` of `[device]`.
    #[serde(default)]
    pub health: Vec<HealthCheck>,
}

/// # `[[unclaimed]]`
///
/// Hardware that would be a device if its driver were bound to it. `boathook list`, `check` and
/// `doctor` report each matching path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "unclaimed"))]
pub struct UnclaimedHardware {
    /// A pattern of host paths. What the pattern captures becomes attributes.
    pub path: PathPattern,
    /// The attributes of each matching path. They are read in this order. A path is left out if one
    /// of them cannot be read and has no default.
    #[serde(default)]
    pub attributes: Vec<AttributeSource>,
    /// Conditions that a matching path must meet to be reported.
    #[serde(default)]
    pub require: Vec<Condition>,
    /// Whether the administrator has probably configured the host so on purpose, for example to give
    /// the hardware to virtual machines. Such a report is a note, and not a warning.
    #[serde(default, rename = "intended")]
    pub is_intended: bool,
    /// The text of the report: what the problem is, and what the administrator should do. `{name}`
    /// is replaced by the attribute `name`.
    pub report: Template,
}

/// Whether a path that a pattern matches must be a symbolic link, or must not be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum SymlinkRule {
    /// Only a symbolic link matches.
    Required,
    /// A symbolic link does not match.
    Refused,
}

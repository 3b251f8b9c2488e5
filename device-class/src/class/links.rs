//! Direct connections between devices.

use serde::Deserialize;

use crate::pattern::PathPattern;
use crate::template::Template;

/// # `[device.links]`
///
/// Direct connections between devices, which the plugin prefers for devices of one
/// container. A file for each connection names the device at its other end.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "links"))]
pub struct Links {
    /// A pattern; each match is the file of one connection.
    pub for_each: PathPattern,
    /// The key of the line, `key value` or `key: value`, that names the device at
    /// the other end.
    pub peer: String,
    /// What the other end's files call this device, by template.
    pub name: Template,
    /// The key of the line with the kind of a connection.
    #[serde(default)]
    pub kind: Option<String>,
    /// The kinds that count.
    #[serde(default)]
    pub kinds: Vec<String>,
}

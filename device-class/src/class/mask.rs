//! Directories of which a container sees no more than is named.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::path_template::PathTemplate;

/// # `masks`
///
/// A directory that the container has anyway, such as one of /proc, and of
/// which it is to see no more than is named: a read-only tmpfs covers it, with
/// copies of files, and with what the container's devices show (`unmask`). Where
/// the container has no such directory nothing is done.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "mask"))]
pub struct Mask {
    /// The directory, by template: the same on the host and in the container.
    pub path: PathTemplate,
    /// Files in it whose text the container gets as it is when it starts, by
    /// template. One that the host lacks is not there.
    #[serde(default)]
    pub copies: Vec<PathTemplate>,
    /// Lines `key: value` of the copies that say something else.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

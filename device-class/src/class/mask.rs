//! Directories of which a container sees no more than is named.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::path_template::PathTemplate;
use super::short_form::short_or_table;

/// A directory that the container has anyway, such as one of `/proc`, and of
/// which it is to see no more than is named: a read-only tmpfs covers it. Short
/// form: its path. Where the container has no such directory there is nothing
/// to cover.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    /// The directory, the same on the host and in the container.
    pub path: PathTemplate,
    /// Files of the host's directory whose text the container gets.
    #[serde(default, deserialize_with = "short_or_table")]
    pub copies: Vec<CopiedFile>,
}

/// A file in a [`Mask`]: its text as it is when the container starts. Short
/// form: its path.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopiedFile {
    /// Where the host has it, and the container gets it.
    pub path: PathTemplate,
    /// Lines `key: value` that say something else in the copy. One that is not
    /// there is added.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Whether it may be missing on the host.
    #[serde(default)]
    pub optional: bool,
}

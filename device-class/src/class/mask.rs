//! Directories of which a container sees no more than is named.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::path_template::PathTemplate;

/// A directory that the container has anyway, such as one of `/proc`, and of
/// which it is to see no more than is named: a read-only tmpfs covers it. Where
/// the container has no such directory there is nothing to cover.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    /// The directory, the same on the host and in the container.
    pub path: PathTemplate,
    /// Files of the host's directory whose text the container gets, as it is
    /// when the container starts. One that the host lacks is not there.
    #[serde(default)]
    pub copies: Vec<PathTemplate>,
    /// Lines `key: value` of the copies that say something else.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

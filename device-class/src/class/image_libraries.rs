//! Libraries of the image that are used instead of the host's.

use serde::Deserialize;

use super::condition::Condition;
use super::library::SoName;
use super::path_template::PathTemplate;
use crate::template::Template;

/// # `image_libraries`
///
/// A directory of the image whose libraries are used instead of the host's, such as a newer
/// user-space driver that works with the host's kernel driver. It is used if it has exactly one
/// file `library.VERSION` whose major version (the first number) is greater than that of
/// `newer_than`. The container's loader then searches this directory first. The hook opens, mounts
/// and runs nothing in it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "image_libraries"))]
pub struct ImageLibraries {
    /// The directory in the container, by template. Links in its path are
    /// followed within the container.
    pub directory: PathTemplate,
    /// The library that is searched in the directory. Its file name ends with a version, such as
    /// `libx.so.550.54.15` for `libx.so`.
    pub library: SoName,
    /// The version of the host's library, by template over the host's attributes.
    #[serde(rename = "newer_than")]
    pub host_version: Template,
    /// Conditions on the host's attributes, such as the versions of its driver
    /// with which newer libraries work.
    #[serde(default)]
    pub require: Vec<Condition>,
}

//! Libraries that a container uses from its image instead of those of the host (`image_libraries`).

use serde::Deserialize;

use super::condition::Condition;
use super::library::SoName;
use super::path_template::PathTemplate;
use crate::template::Template;

/// # `image_libraries`
///
/// A directory of the image whose libraries are used instead of the host's, such as a newer
/// user-space driver that works with the host's kernel driver. The directory is used if it has
/// exactly one file `library.VERSION`, and the major version (the first number) of this file is
/// greater than that of `newer_than`. The container's dynamic loader then searches this directory
/// first. The hook opens, mounts and runs nothing in it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "image_libraries"))]
pub struct ImageLibraries {
    /// A template for the path of the directory in the container. Symbolic links in this path are
    /// resolved inside the container.
    pub directory: PathTemplate,
    /// The library whose version decides. Its file in the directory has the version at the end of
    /// its name, such as `libx.so.550.54.15` for `libx.so`.
    pub library: SoName,
    /// A template for the version of the host's library. It may use the host's attributes.
    #[serde(rename = "newer_than")]
    pub host_version: Template,
    /// Conditions on the host's attributes. For example, the image's libraries may work only with
    /// certain versions of the host's driver.
    #[serde(default)]
    pub require: Vec<Condition>,
}

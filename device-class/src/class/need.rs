//! Linux capabilities that programs need to use the devices of a class (`needs`).

use std::path::Path;

use serde::Deserialize;

use crate::name::LinuxCapability;
use crate::pattern::PathPattern;

/// # `needs`
///
/// A Linux capability that programs need to use the devices of the class, such as `CAP_NET_ADMIN`.
/// Short form: its name. Boathook does not give the capability to containers. If a container does
/// not have it, `boathook explain` and `doctor` report that, and say how to add it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "need"))]
pub struct NeededCapability {
    /// The name of the capability, as listed in capabilities(7).
    pub capability: LinuxCapability,
    /// What fails without the capability, such as `mounting`. Default: any use of the device.
    pub needed_for: Option<String>,
    /// A pattern of device nodes, such as `/dev/vfio/noiommu-*`. The capability is needed only for
    /// devices that have such a node. Default: for all devices.
    pub for_node: Option<PathPattern>,
}

impl NeededCapability {
    /// Returns whether a container needs the capability for one of the device nodes `paths`.
    pub fn is_needed_for<'p>(&self, mut paths: impl Iterator<Item = &'p Path>) -> bool {
        match &self.for_node {
            None => true,
            Some(pattern) => paths.any(|path| pattern.matches_path(path)),
        }
    }
}

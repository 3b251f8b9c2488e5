//! Linux capabilities that programs need to use the devices of a class (`needs`).

use serde::Deserialize;

use crate::name::LinuxCapability;

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
}

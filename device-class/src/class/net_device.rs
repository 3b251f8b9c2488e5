//! Network interfaces of a device (`netdev` in `[device]`).

use serde::Deserialize;

use crate::pattern::PathPattern;
use crate::template::Template;

/// # `netdev`
///
/// The network interfaces of a device. When a container starts, the interfaces are moved into its
/// network namespace. When the namespace ends, the kernel moves a hardware interface back to the
/// host, and deletes a virtual one. Short form: the path. A class with `netdev` must not have
/// `[sharing]` or `follow = true`. It must find its devices by their place on the bus, because an
/// interface that was moved is no longer in the host's /sys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "netdev"))]
pub struct NetDevice {
    /// A pattern, such as `/sys/bus/usb/devices/{port}/net/{interface}`. Each matching path is the
    /// directory of one interface, and its last component is the name of the interface.
    pub path: PathPattern,
    /// A template for the interface's name in the container. It may use the captures of `path`. By
    /// default the name is not changed.
    pub name: Option<Template>,
}

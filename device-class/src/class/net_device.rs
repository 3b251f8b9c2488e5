//! Network interfaces of a device (`netdev` in `[device]`).

use serde::Deserialize;

use crate::pattern::PathPattern;
use crate::template::Template;

/// # `netdev`
///
/// The network interfaces of a device. When a container starts, they are moved into its network
/// namespace. When the namespace ends, the kernel moves a hardware interface back to the host, and
/// deletes a virtual one. Short form: the path. A class with `netdev` is neither shared nor
/// followed, and must find its devices by their place on the bus, because a moved interface is no
/// longer below the host's /sys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "netdev"))]
pub struct NetDevice {
    /// A pattern, such as `/sys/bus/usb/devices/{port}/net/{interface}`: each match is the
    /// directory of an interface, whose name is the last component.
    pub path: PathPattern,
    /// The name of the interface in the container, by template, which may use the captures of
    /// `path`. By default the name is not changed.
    pub name: Option<Template>,
}

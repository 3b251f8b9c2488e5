//! Direct connections between devices, such as cables or bridges (`[device.links]`).

use serde::Deserialize;

use crate::pattern::PathPattern;
use crate::template::Template;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawLinks")]
pub struct Links {
    /// The source of the names of the peer devices. A peer device is the device at the other end of
    /// a connection.
    pub peers: LinkPeers,
    /// A template for this device's own name, as the files or driver properties of its peers write
    /// it.
    pub name: Template,
    /// The key in a connection's file whose value is the kind of the connection. `None` means that
    /// connections of every kind count.
    pub kind_key: Option<String>,
    /// The kinds of connections that count. Connections of other kinds are ignored.
    pub used_kinds: Vec<String>,
    /// The key in a connection's file whose value is the weight of the connection, which grows with
    /// the number of hops.
    pub weight_key: Option<String>,
}

/// The source of the names of a device's peers, which are the devices to which it has direct
/// connections.
#[derive(Debug, Clone)]
pub enum LinkPeers {
    /// There is one file for each connection. The value of the key `peer_key` in this file is the
    /// name of the peer device.
    Files {
        path_pattern: PathPattern,
        peer_key: String,
    },
    /// The template is the key of the driver properties that name the peers. The first word of each
    /// value is the name of one peer device.
    DriverProperty(Template),
}

/// # `[device.links]`
///
/// Direct connections between devices. For one container, the plugin prefers devices that are
/// connected with each other. The device at the other end of a connection is named in a file for
/// each connection (`for_each` and `peer`), or in facts (`fact`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "links"))]
pub(super) struct RawLinks {
    /// A pattern of host paths. Each matching path is the file that describes one connection.
    #[serde(rename = "for_each")]
    path_pattern: Option<PathPattern>,
    /// The key in the file of a connection, in a line `key value` or `key: value`. The value is the
    /// name of the device at the other end.
    #[serde(rename = "peer")]
    peer_key: Option<String>,
    /// A template for the key of the facts that name the devices at the other ends. There is one
    /// fact for each connection, and its first word is the name of the device. Further words, such
    /// as the number of the connection, distinguish several connections with the same device, which
    /// are added up.
    #[serde(rename = "fact")]
    property_key: Option<Template>,
    /// A template for the name by which the device at the other end refers to this device.
    name: Template,
    /// With `for_each`: the key whose value is the kind of the connection.
    #[serde(rename = "kind")]
    kind_key: Option<String>,
    /// The kinds of connections that count. Connections of other kinds are ignored.
    #[serde(default, rename = "kinds")]
    used_kinds: Vec<String>,
    /// With `for_each`: the key whose value is a number that is larger if the connection has more
    /// hops. Connections with a lower number are preferred.
    #[serde(rename = "weight")]
    weight_key: Option<String>,
}

impl TryFrom<RawLinks> for Links {
    type Error = &'static str;

    fn try_from(raw: RawLinks) -> Result<Self, &'static str> {
        let peers = match (raw.path_pattern, raw.peer_key, raw.property_key) {
            (Some(path_pattern), Some(peer_key), None) => LinkPeers::Files {
                path_pattern,
                peer_key,
            },
            (None, None, Some(property_key)) => LinkPeers::DriverProperty(property_key),
            _ => return Err("links are `for_each` with `peer`, or `fact`"),
        };
        Ok(Links {
            peers,
            name: raw.name,
            kind_key: raw.kind_key,
            used_kinds: raw.used_kinds,
            weight_key: raw.weight_key,
        })
    }
}

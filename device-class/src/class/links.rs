//! Direct connections between devices.

use serde::Deserialize;

use crate::pattern::PathPattern;
use crate::template::Template;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawLinks")]
pub struct Links {
    /// The source of the names of the peer devices, which are at the other ends of the connections.
    pub peers: LinkPeers,
    /// The name by which peer devices refer to this device, as a template.
    pub name: Template,
    /// The key of the line in a connection's file that has the kind of the connection.
    pub kind_key: Option<String>,
    /// The kinds of connections that are used. Connections of other kinds are ignored.
    pub used_kinds: Vec<String>,
    /// The key of the line in a connection's file that has the weight of the connection.
    pub weight_key: Option<String>,
}

/// The source of the names of the peer devices, to which a device has direct connections.
#[derive(Debug, Clone)]
pub enum LinkPeers {
    /// One file for each connection. Its line with the key `peer_key` names the peer device.
    Files {
        path_pattern: PathPattern,
        peer_key: String,
    },
    /// The driver properties whose key is this template. The first word of each value names one
    /// peer device.
    DriverProperty(Template),
}

/// # `[device.links]`
///
/// Direct connections between devices, which the plugin prefers for devices of one
/// container. A file for each connection, or a fact, names the device at its other end.
/// Either `for_each` and `peer`, or `fact`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "links"))]
pub(super) struct RawLinks {
    /// A pattern of host paths. Each matching path is the file of one connection.
    #[serde(rename = "for_each")]
    path_pattern: Option<PathPattern>,
    /// The key of the line, `key value` or `key: value`, that names the device at
    /// the other end.
    #[serde(rename = "peer")]
    peer_key: Option<String>,
    /// The key, by template, of the facts that name the devices at the other ends. The first
    /// word of each fact is the name. Further words, such as the number of a link, distinguish
    /// several connections with one device, which are added up.
    #[serde(rename = "fact")]
    property_key: Option<Template>,
    /// The name by which the other end refers to this device, by template.
    name: Template,
    /// With `for_each`: the key of the line with the kind of a connection.
    #[serde(rename = "kind")]
    kind_key: Option<String>,
    /// The kinds of connections that are used. Connections of other kinds are ignored.
    #[serde(default, rename = "kinds")]
    used_kinds: Vec<String>,
    /// With `for_each`: the key of the line with a number that grows with the hops of the
    /// connection. Connections with a lower number are preferred.
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

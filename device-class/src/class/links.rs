//! Direct connections between devices.

use serde::Deserialize;

use crate::pattern::PathPattern;
use crate::template::Template;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawLinks")]
pub struct Links {
    /// The place that names the devices at the other ends.
    pub ends: Ends,
    /// The name by which the other ends refer to this device, as a template.
    pub name: Template,
    /// The key of the line in a connection's file that has the kind of the connection.
    pub kind: Option<String>,
    /// The kinds of connections that count; all others are ignored.
    pub kinds: Vec<String>,
    /// The key of the line with the weight of a connection.
    pub weight: Option<String>,
}

/// The place that names the devices at the other ends of connections.
#[derive(Debug, Clone)]
pub enum Ends {
    /// A file for each connection. Its line with the key `peer` names the other device.
    Files { for_each: PathPattern, peer: String },
    /// The driver facts with this key. Each value names one other device.
    Fact(Template),
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
    /// A pattern; each match is the file of one connection.
    for_each: Option<PathPattern>,
    /// The key of the line, `key value` or `key: value`, that names the device at
    /// the other end.
    peer: Option<String>,
    /// The key, by template, of the facts that name the devices at the other ends. The first
    /// word of each fact is the name; further words, such as the number of a link, tell apart
    /// several connections with one device, which all count.
    fact: Option<Template>,
    /// The name by which the other end refers to this device, by template.
    name: Template,
    /// With `for_each`: the key of the line with the kind of a connection.
    kind: Option<String>,
    /// The kinds of connections that count. All others are ignored.
    #[serde(default)]
    kinds: Vec<String>,
    /// With `for_each`: the key of the line with a number that grows with the hops of the
    /// connection. Connections with a lower number are preferred.
    weight: Option<String>,
}

impl TryFrom<RawLinks> for Links {
    type Error = &'static str;

    fn try_from(raw: RawLinks) -> Result<Self, &'static str> {
        let ends = match (raw.for_each, raw.peer, raw.fact) {
            (Some(for_each), Some(peer), None) => Ends::Files { for_each, peer },
            (None, None, Some(fact)) => Ends::Fact(fact),
            _ => return Err("links are `for_each` with `peer`, or `fact`"),
        };
        Ok(Links {
            ends,
            name: raw.name,
            kind: raw.kind,
            kinds: raw.kinds,
            weight: raw.weight,
        })
    }
}

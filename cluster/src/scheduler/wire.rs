//! The messages between kube-scheduler and an extender, in both spellings: today's
//! types have no JSON tags, so that names are those of Go's fields; before 1.18 they
//! had tags in lower case.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::objects::{Pod, or_default};
use crate::json::{List, Text};

/// The maximum number of nodes in a request: several times that of the largest cluster.
const MAX_NODES: usize = 100_000;

/// The longest pod, in bytes: more than the API server accepts.
const MAX_POD: usize = 4 << 20;

/// How names are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// `NodeNames`.
    Go,
    /// `nodenames`.
    Tagged,
}

/// The arguments of filter and prioritize.
#[derive(Debug)]
pub struct Arguments<'a> {
    /// The spelling of the request, which the answer uses too.
    pub spelling: Spelling,
    pub pod: Pod,
    pub nodes: Candidates<'a>,
}

#[derive(Debug)]
pub enum Candidates<'a> {
    /// Their names, with `nodeCacheCapable: true`.
    Names(Vec<Text<'a>>),
    /// The whole objects, which are returned unchanged.
    Objects(Vec<(String, &'a RawValue)>),
    None,
}

#[derive(Deserialize)]
struct ExtenderArgs<'a> {
    #[serde(rename = "Pod", borrow, default)]
    pod: Option<&'a RawValue>,
    #[serde(rename = "Nodes", borrow, default)]
    nodes: Option<NodeList<'a>>,
    #[serde(rename = "NodeNames", borrow, default)]
    names: Option<List<Text<'a>, MAX_NODES>>,
    #[serde(rename = "pod", borrow, default)]
    tagged_pod: Option<&'a RawValue>,
    #[serde(rename = "nodes", borrow, default)]
    tagged_nodes: Option<NodeList<'a>>,
    #[serde(rename = "nodenames", borrow, default)]
    tagged_names: Option<List<Text<'a>, MAX_NODES>>,
}

#[derive(Deserialize)]
struct NodeList<'a> {
    #[serde(borrow, default)]
    items: Option<List<&'a RawValue, MAX_NODES>>,
}

/// The part of a node that identifies it.
#[derive(Deserialize)]
struct Named {
    #[serde(default, deserialize_with = "or_default")]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
}

impl<'a> Arguments<'a> {
    pub fn read(body: &'a [u8]) -> serde_json::Result<Self> {
        let request: ExtenderArgs<'a> = serde_json::from_slice(body)?;
        let spelling = match &request.pod {
            None if request.tagged_pod.is_some() => Spelling::Tagged,
            _ => Spelling::Go,
        };
        let names = request.names.or(request.tagged_names);
        let nodes = request.nodes.or(request.tagged_nodes);
        let nodes = match (names, nodes) {
            (Some(names), _) => Candidates::Names(names.0),
            (None, Some(list)) => {
                let items = list.items.unwrap_or_default().0.into_iter();
                let named = items.map(|item| {
                    let named: Named = serde_json::from_str(item.get())?;
                    Ok((named.metadata.name, item))
                });
                Candidates::Objects(named.collect::<serde_json::Result<_>>()?)
            }
            (None, None) => Candidates::None,
        };
        let pod = request.pod.or(request.tagged_pod);
        let pod = pod.map_or("null", RawValue::get);
        if pod.len() > MAX_POD {
            let reason = format!("the pod is longer than {MAX_POD} bytes");
            return Err(serde_json::Error::custom(reason));
        }
        let pod: Option<Pod> = serde_json::from_str(pod)?;
        Ok(Self {
            spelling,
            pod: pod.unwrap_or_default(),
            nodes,
        })
    }
}

impl Candidates<'_> {
    pub fn names(&self) -> Vec<&str> {
        match self {
            Candidates::Names(names) => names.iter().map(|name| &*name.0).collect(),
            Candidates::Objects(objects) => objects.iter().map(|(name, _)| &**name).collect(),
            Candidates::None => Vec::new(),
        }
    }

    /// Keeps the nodes for which this is true.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        match self {
            Candidates::Names(names) => names.retain(|name| keep(&name.0)),
            Candidates::Objects(objects) => objects.retain(|(name, _)| keep(name)),
            Candidates::None => {}
        }
    }
}

/// Nodes that were refused, and why.
pub type Refused = BTreeMap<String, String>;

/// The answer to filter. kube-scheduler sends only nodes that passed its own filters,
/// and does not call again when it searches for pods to preempt: preempting a pod would
/// not help, which the second map reports.
pub fn filter_answer(
    spelling: Spelling,
    passed: &Candidates<'_>,
    refused: Refused,
) -> serde_json::Result<Vec<u8>> {
    let names = match passed {
        Candidates::Names(names) => Some(&names[..]),
        _ => None,
    };
    let items = match passed {
        Candidates::Objects(objects) => Some(objects.iter().map(|(_, raw)| *raw).collect()),
        _ => None,
    };
    let nodes = items.map(|items| Items { items });
    match spelling {
        Spelling::Go => serde_json::to_vec(&GoAnswer {
            nodes,
            names,
            preemptable: (),
            refused,
            error: "",
        }),
        Spelling::Tagged => serde_json::to_vec(&TaggedAnswer {
            nodes,
            names,
            refused,
        }),
    }
}

#[derive(Serialize)]
struct Items<'a> {
    items: Vec<&'a RawValue>,
}

#[derive(Serialize)]
struct GoAnswer<'a> {
    #[serde(rename = "Nodes")]
    nodes: Option<Items<'a>>,
    #[serde(rename = "NodeNames")]
    names: Option<&'a [Text<'a>]>,
    #[serde(rename = "FailedNodes")]
    preemptable: (),
    #[serde(rename = "FailedAndUnresolvableNodes")]
    refused: Refused,
    #[serde(rename = "Error")]
    error: &'a str,
}

#[derive(Serialize)]
struct TaggedAnswer<'a> {
    #[serde(rename = "nodes", skip_serializing_if = "Option::is_none")]
    nodes: Option<Items<'a>>,
    #[serde(rename = "nodenames", skip_serializing_if = "Option::is_none")]
    names: Option<&'a [Text<'a>]>,
    #[serde(rename = "failedNodes", skip_serializing_if = "BTreeMap::is_empty")]
    refused: Refused,
}

pub fn prioritize_answer(spelling: Spelling, scores: &[(&str, u8)]) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Go<'a> {
        host: &'a str,
        score: u8,
    }
    #[derive(Serialize)]
    struct Tagged<'a> {
        host: &'a str,
        score: u8,
    }
    let scores = scores.iter().copied();
    match spelling {
        Spelling::Go => {
            let list: Vec<_> = scores.map(|(host, score)| Go { host, score }).collect();
            serde_json::to_vec(&list)
        }
        Spelling::Tagged => {
            let list: Vec<_> = scores.map(|(host, score)| Tagged { host, score }).collect();
            serde_json::to_vec(&list)
        }
    }
}

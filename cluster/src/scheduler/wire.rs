//! The messages between kube-scheduler and an extender. The types have no JSON tags, so that
//! the keys are the names of Go's fields. Before Kubernetes 1.18 they had tags in lower case,
//! and Go ignores the case of keys that it reads.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::objects::{Pod, or_default};
use crate::json::{List, Text};

/// The maximum number of nodes in a request: several times that of the largest cluster.
const MAX_NODES: usize = 100_000;

/// The maximum length in bytes of a pod, which is more than the API server accepts.
const MAX_POD: usize = 4 << 20;

/// The arguments of filter and prioritize.
#[derive(Debug)]
pub struct Arguments<'a> {
    pub pod: Pod,
    pub nodes: Candidates<'a>,
}

#[derive(Debug)]
pub enum Candidates<'a> {
    /// The names of nodes, with `nodeCacheCapable: true`.
    Names(Vec<Text<'a>>),
    /// The nodes as whole objects, which are returned unchanged.
    Objects(Vec<(String, &'a RawValue)>),
    None,
}

#[derive(Deserialize)]
struct ExtenderArgs<'a> {
    #[serde(rename = "Pod", alias = "pod", borrow, default)]
    pod: Option<&'a RawValue>,
    #[serde(rename = "Nodes", alias = "nodes", borrow, default)]
    nodes: Option<NodeList<'a>>,
    #[serde(rename = "NodeNames", alias = "nodenames", borrow, default)]
    names: Option<List<Text<'a>, MAX_NODES>>,
}

#[derive(Deserialize)]
struct NodeList<'a> {
    #[serde(borrow, default)]
    items: Option<List<&'a RawValue, MAX_NODES>>,
}

/// The part of a node that identifies it.
#[derive(Deserialize)]
struct NodeIdentity {
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
        let nodes = match (request.names, request.nodes) {
            (Some(names), _) => Candidates::Names(names.0),
            (None, Some(list)) => {
                let items = list.items.unwrap_or_default().0.into_iter();
                let identified = items.map(|item| {
                    let identified: NodeIdentity = serde_json::from_str(item.get())?;
                    Ok((identified.metadata.name, item))
                });
                Candidates::Objects(identified.collect::<serde_json::Result<_>>()?)
            }
            (None, None) => Candidates::None,
        };
        let pod = request.pod.map_or("null", RawValue::get);
        if pod.len() > MAX_POD {
            let reason = format!("the pod is longer than {MAX_POD} bytes");
            return Err(serde_json::Error::custom(reason));
        }
        let pod: Option<Pod> = serde_json::from_str(pod)?;
        Ok(Self {
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

    /// Keeps the nodes for which `keep` returns true.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        match self {
            Candidates::Names(names) => names.retain(|name| keep(&name.0)),
            Candidates::Objects(objects) => objects.retain(|(name, _)| keep(name)),
            Candidates::None => {}
        }
    }
}

/// The nodes that were refused, with the reasons.
pub type RefusedNodes = BTreeMap<String, String>;

/// The answer to filter. kube-scheduler sends only nodes that passed its own filters,
/// and does not call again when it searches for pods to preempt: preempting a pod would
/// not help, which the second map reports. It takes precedence; old versions know only the
/// first.
pub fn filter_answer(
    passed: &Candidates<'_>,
    refused: &RefusedNodes,
) -> serde_json::Result<Vec<u8>> {
    let (names, objects) = match passed {
        Candidates::Names(names) => (Some(&names[..]), None),
        Candidates::Objects(objects) => (None, Some(objects)),
        Candidates::None => (None, None),
    };
    serde_json::to_vec(&FilterResult {
        nodes: objects.map(|objects| Items {
            items: objects.iter().map(|(_, raw)| *raw).collect(),
        }),
        node_names: names,
        failed_nodes: refused,
        failed_and_unresolvable_nodes: refused,
        error: "",
    })
}

#[derive(Serialize)]
struct Items<'a> {
    items: Vec<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FilterResult<'a> {
    nodes: Option<Items<'a>>,
    node_names: Option<&'a [Text<'a>]>,
    failed_nodes: &'a RefusedNodes,
    failed_and_unresolvable_nodes: &'a RefusedNodes,
    error: &'a str,
}

/// A node's score, in the answer to prioritize.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority<'a> {
    pub host: &'a str,
    pub score: u8,
}

//! The messages between kube-scheduler and an extender (k8s.io/kube-scheduler/extender/v1). The
//! keys of their JSON objects are the names of Go's fields, such as `NodeNames`. Before Kubernetes
//! 1.18 they were in lower case. Answers need only one form, because Go ignores the case of keys
//! when it parses JSON.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::objects::{Pod, or_default};
use crate::json::{BoundedList, Text};

/// The maximum number of nodes in a request. Kubernetes supports clusters of up to 5,000 nodes.
const MAX_NODES: usize = 100_000;

/// The maximum length in bytes of a pod. The API server accepts no object of more than 3 MiB.
const MAX_POD: usize = 4 << 20;

/// The arguments of `filter` and `prioritize`.
#[derive(Debug)]
pub struct Arguments<'a> {
    pub pod: Pod,
    pub nodes: Candidates<'a>,
}

/// The nodes of which kube-scheduler may choose one for a pod.
#[derive(Debug)]
pub enum Candidates<'a> {
    /// The names of the nodes. kube-scheduler sends them if its configuration has
    /// `nodeCacheCapable: true` for the extender.
    Names(Vec<Text<'a>>),
    /// The names and the whole objects of the nodes. The objects are returned unchanged.
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
    names: Option<BoundedList<Text<'a>, MAX_NODES>>,
}

#[derive(Deserialize)]
struct NodeList<'a> {
    #[serde(borrow, default)]
    items: Option<BoundedList<&'a RawValue, MAX_NODES>>,
}

/// The part of a node object that has the node's name.
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
    /// Parses the body of a request.
    pub fn parse(body: &'a [u8]) -> serde_json::Result<Self> {
        let request: ExtenderArgs<'a> = serde_json::from_slice(body)?;
        let nodes = match (request.names, request.nodes) {
            (Some(names), _) => Candidates::Names(names.0),
            (None, Some(list)) => {
                let items = list.items.unwrap_or_default().0.into_iter();
                let named_items = items.map(|item| {
                    let identity: NodeIdentity = serde_json::from_str(item.get())?;
                    Ok((identity.metadata.name, item))
                });
                Candidates::Objects(named_items.collect::<serde_json::Result<_>>()?)
            }
            (None, None) => Candidates::None,
        };
        let pod_text = request.pod.map_or("null", RawValue::get);
        if pod_text.len() > MAX_POD {
            let reason = format!("the pod is longer than {MAX_POD} bytes");
            return Err(serde_json::Error::custom(reason));
        }
        let pod: Option<Pod> = serde_json::from_str(pod_text)?;
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

/// The reasons why nodes were refused, by the names of the nodes.
pub type RefusedNodes = BTreeMap<String, String>;

/// Builds the answer to `filter`. kube-scheduler only sends nodes with enough units in total, so
/// that preempting a pod on a refused node would not help. `FailedAndUnresolvableNodes` tells
/// kube-scheduler this. Older versions of kube-scheduler only read `FailedNodes`, so the refused
/// nodes are in both maps.
pub fn build_filter_answer(
    passed: &Candidates<'_>,
    refused: &RefusedNodes,
) -> serde_json::Result<Vec<u8>> {
    let (names, objects) = match passed {
        Candidates::Names(names) => (Some(&names[..]), None),
        Candidates::Objects(objects) => (None, Some(objects)),
        Candidates::None => (None, None),
    };
    serde_json::to_vec(&FilterResult {
        nodes: objects.map(|objects| AcceptedNodes {
            items: objects.iter().map(|(_, raw)| *raw).collect(),
        }),
        node_names: names,
        failed_nodes: refused,
        failed_and_unresolvable_nodes: refused,
        error: "",
    })
}

#[derive(Serialize)]
struct AcceptedNodes<'a> {
    items: Vec<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FilterResult<'a> {
    nodes: Option<AcceptedNodes<'a>>,
    node_names: Option<&'a [Text<'a>]>,
    failed_nodes: &'a RefusedNodes,
    failed_and_unresolvable_nodes: &'a RefusedNodes,
    error: &'a str,
}

/// The score of one node, in the answer to `prioritize`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority<'a> {
    pub host: &'a str,
    pub score: u8,
}

//! Defines the messages between kube-scheduler and an extender (k8s.io/kube-scheduler/extender/v1).
//! The keys of the JSON objects are the names of Go fields, such as `NodeNames`. Before Kubernetes
//! 1.18 the keys were in lower case. Answers use only the newer keys, because Go ignores the case
//! of keys when it parses JSON.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::objects::{Pod, deserialize_or_default};
use crate::json::{BoundedList, JsonString};

/// The maximum number of nodes in a request. Kubernetes supports clusters of up to 5,000 nodes.
const MAX_NODES: usize = 100_000;

/// The maximum length of a pod as JSON, in bytes. The API server accepts no object of more than 3
/// MiB.
const MAX_POD_BYTES: usize = 4 << 20;

/// The arguments of the calls `filter` and `prioritize`.
#[derive(Debug)]
pub struct ExtenderRequest<'a> {
    pub pod: Pod,
    pub nodes: CandidateNodes<'a>,
}

/// The candidate nodes of a request. kube-scheduler chooses one of them for the pod.
#[derive(Debug)]
pub enum CandidateNodes<'a> {
    /// The names of the nodes. kube-scheduler sends only names if its configuration has
    /// `nodeCacheCapable: true` for the extender.
    Names(Vec<JsonString<'a>>),
    /// The names and the whole objects of the nodes. The answer contains the objects of the
    /// accepted nodes unchanged.
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
    names: Option<BoundedList<JsonString<'a>, MAX_NODES>>,
}

#[derive(Deserialize)]
struct NodeList<'a> {
    #[serde(borrow, default)]
    items: Option<BoundedList<&'a RawValue, MAX_NODES>>,
}

/// A node object, of which only the metadata with the node's name is read.
#[derive(Deserialize)]
struct NodeIdentity {
    #[serde(default, deserialize_with = "deserialize_or_default")]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default, deserialize_with = "deserialize_or_default")]
    name: String,
}

impl<'a> ExtenderRequest<'a> {
    /// Parses the body of a `filter` or `prioritize` request. Fails if the pod is longer than
    /// `MAX_POD_BYTES`, or a list has more than `MAX_NODES` nodes.
    pub fn parse(body: &'a [u8]) -> serde_json::Result<Self> {
        let request: ExtenderArgs<'a> = serde_json::from_slice(body)?;
        let nodes = match (request.names, request.nodes) {
            (Some(names), _) => CandidateNodes::Names(names.0),
            (None, Some(list)) => {
                let items = list.items.unwrap_or_default().0.into_iter();
                let named_items = items.map(|item| {
                    let identity: NodeIdentity = serde_json::from_str(item.get())?;
                    Ok((identity.metadata.name, item))
                });
                CandidateNodes::Objects(named_items.collect::<serde_json::Result<_>>()?)
            }
            (None, None) => CandidateNodes::None,
        };
        let pod_text = request.pod.map_or("null", RawValue::get);
        if pod_text.len() > MAX_POD_BYTES {
            let reason = format!("the pod is longer than {MAX_POD_BYTES} bytes");
            return Err(serde_json::Error::custom(reason));
        }
        let pod: Option<Pod> = serde_json::from_str(pod_text)?;
        Ok(Self {
            pod: pod.unwrap_or_default(),
            nodes,
        })
    }
}

impl CandidateNodes<'_> {
    pub fn names(&self) -> Vec<&str> {
        match self {
            CandidateNodes::Names(names) => names.iter().map(|name| &*name.0).collect(),
            CandidateNodes::Objects(objects) => objects.iter().map(|(name, _)| &**name).collect(),
            CandidateNodes::None => Vec::new(),
        }
    }

    /// Keeps the nodes for whose names `should_keep` returns true, and removes the others.
    pub fn retain(&mut self, should_keep: impl Fn(&str) -> bool) {
        match self {
            CandidateNodes::Names(names) => names.retain(|name| should_keep(&name.0)),
            CandidateNodes::Objects(objects) => objects.retain(|(name, _)| should_keep(name)),
            CandidateNodes::None => {}
        }
    }
}

/// The refused nodes. The key is the name of a node, and the value is the reason for its refusal.
pub type RefusedNodes = BTreeMap<String, String>;

/// Builds the answer to `filter`. The map `FailedAndUnresolvableNodes` contains the refused nodes,
/// so that kube-scheduler preempts no pods on them. Preemption may not help, because these nodes
/// have enough units in total. `FailedNodes` also contains them, because older versions of
/// kube-scheduler read only this map.
pub fn build_filter_answer(
    accepted_nodes: &CandidateNodes<'_>,
    refused_nodes: &RefusedNodes,
) -> serde_json::Result<Vec<u8>> {
    let (names, objects) = match accepted_nodes {
        CandidateNodes::Names(names) => (Some(&names[..]), None),
        CandidateNodes::Objects(objects) => (None, Some(objects)),
        CandidateNodes::None => (None, None),
    };
    serde_json::to_vec(&FilterResult {
        nodes: objects.map(|objects| AcceptedNodes {
            items: objects.iter().map(|(_, object)| *object).collect(),
        }),
        node_names: names,
        failed_nodes: refused_nodes,
        failed_and_unresolvable_nodes: refused_nodes,
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
    node_names: Option<&'a [JsonString<'a>]>,
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

//! Watches nodes and pods in the API server, and keeps the extender's view of the cluster up to
//! date.

use std::sync::Arc;

use backon::ExponentialBuilder;
use kube::Client;
use kube::runtime::watcher::{Config, Event};

use super::extender::Extender;
use super::objects::{Node, Pod};
use super::view::PlacedPod;
use crate::watch::watch_objects;

/// Watches all nodes, and never returns. A failed watch is repeated after one of the `delays`.
pub async fn watch_nodes(client: Client, extender: Arc<Extender>, delays: ExponentialBuilder) {
    let mut listed = Vec::new();
    let errors = &extender.metrics().watch_errors;
    watch_objects::<Node>(
        "nodes",
        client,
        Config::default(),
        errors,
        delays,
        |event| match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => listed.push(node),
            Event::InitDone => {
                extender.change_view(|view| view.replace_nodes(&listed));
                listed = Vec::new();
            }
            Event::Apply(node) => extender.change_view(|view| view.apply_node(&node)),
            Event::Delete(node) => {
                let name = node.metadata.name.unwrap_or_default();
                extender.change_view(|view| view.remove_node(&name));
            }
        },
    )
    .await;
}

/// Watches the pods that are bound to a node and have not ended, and never returns. A failed
/// watch is repeated after one of the `delays`.
pub async fn watch_pods(client: Client, extender: Arc<Extender>, delays: ExponentialBuilder) {
    let mut listed = Vec::new();
    let field_selector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
    let config = Config::default().fields(field_selector);
    let errors = &extender.metrics().watch_errors;
    watch_objects::<Pod>(
        "pods",
        client,
        config,
        errors,
        delays,
        |event| match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => listed.extend(PlacedPod::from_pod(&pod, extender.config())),
            Event::InitDone => {
                let listed = std::mem::take(&mut listed);
                extender.change_view(|view| view.replace_pods(listed));
            }
            Event::Apply(pod) => extender.change_view(|view| view.apply_pod(&pod)),
            Event::Delete(pod) => {
                let uid = pod.metadata.uid.unwrap_or_default();
                extender.change_view(|view| view.remove_pod(&uid));
            }
        },
    )
    .await;
}

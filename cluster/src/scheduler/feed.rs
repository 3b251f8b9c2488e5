//! Keeps the view up to date by watches of nodes and pods.

use std::sync::Arc;

use backon::ExponentialBuilder;
use kube::Client;
use kube::runtime::watcher::{Config, Event};

use super::extender::Extender;
use super::objects::{Node, Pod};
use super::view::PlacedPod;
use crate::watch::follow;

/// Watches nodes, and never returns.
pub async fn watch_nodes(client: Client, extender: Arc<Extender>, delays: ExponentialBuilder) {
    let mut listed = Vec::new();
    let errors = &extender.metrics().watch_errors;
    follow::<Node>(
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

/// Watches pods that have a node and have not ended, and never returns.
pub async fn watch_pods(client: Client, extender: Arc<Extender>, delays: ExponentialBuilder) {
    let mut listed = Vec::new();
    let selected = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
    let config = Config::default().fields(selected);
    let errors = &extender.metrics().watch_errors;
    follow::<Pod>(
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

//! Watches nodes and pods in the API server, and keeps the extender's view of the cluster up to
//! date.

use std::sync::Arc;

use backon::ExponentialBuilder;
use kube::Client;
use kube::runtime::watcher::{Config, Event};

use super::extender::Extender;
use super::objects::{Node, Pod};
use super::view::BoundPod;
use crate::watch::watch_objects;

/// Watches all nodes and updates the extender's view of the cluster. Never returns: if the watch
/// fails, it is started again after the next delay in `retry_delays`.
pub async fn watch_nodes(
    client: Client,
    extender: Arc<Extender>,
    retry_delays: ExponentialBuilder,
) {
    let mut initial_nodes = Vec::new();
    let error_counters = &extender.metrics().watch_errors;
    watch_objects::<Node>(
        "nodes",
        client,
        Config::default(),
        error_counters,
        retry_delays,
        |event| match event {
            Event::Init => initial_nodes.clear(),
            Event::InitApply(node) => initial_nodes.push(node),
            Event::InitDone => {
                extender.update_view(|view| view.replace_nodes(&initial_nodes));
                initial_nodes = Vec::new();
            }
            Event::Apply(node) => extender.update_view(|view| view.apply_node(&node)),
            Event::Delete(node) => {
                let name = node.metadata.name.unwrap_or_default();
                extender.update_view(|view| view.remove_node(&name));
            }
        },
    )
    .await;
}

/// Watches the pods that are bound to a node and have not ended, and updates the extender's view of
/// the cluster. Never returns: if the watch fails, it is started again after the next delay in
/// `retry_delays`.
pub async fn watch_pods(client: Client, extender: Arc<Extender>, retry_delays: ExponentialBuilder) {
    let mut initial_pods = Vec::new();
    let field_selector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
    let config = Config::default().fields(field_selector);
    let error_counters = &extender.metrics().watch_errors;
    watch_objects::<Pod>(
        "pods",
        client,
        config,
        error_counters,
        retry_delays,
        |event| match event {
            Event::Init => initial_pods.clear(),
            Event::InitApply(pod) => {
                initial_pods.extend(BoundPod::from_pod(&pod, extender.config()))
            }
            Event::InitDone => {
                let initial_pods = std::mem::take(&mut initial_pods);
                extender.update_view(|view| view.replace_pods(initial_pods));
            }
            Event::Apply(pod) => extender.update_view(|view| view.apply_pod(&pod)),
            Event::Delete(pod) => {
                let uid = pod.metadata.uid.unwrap_or_default();
                extender.update_view(|view| view.remove_pod(&uid));
            }
        },
    )
    .await;
}

//! Keeps the view up to date by watches of nodes and pods.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::extender::Extender;
use super::metrics::KindLabels;
use super::objects::{Node, Pod};
use super::view::PlacedPod;
use crate::retry::Retry;

/// Watches nodes, and never returns.
pub async fn nodes(client: Client, extender: Arc<Extender>, retry: Retry) {
    let mut listed = Vec::new();
    let config = watcher::Config::default();
    follow::<Node>(
        "nodes",
        client,
        config,
        &Arc::clone(&extender),
        retry,
        |event| match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => listed.push(node),
            Event::InitDone => {
                extender.change(|view| view.replace_nodes(&listed));
                listed = Vec::new();
            }
            Event::Apply(node) => extender.change(|view| view.apply_node(&node)),
            Event::Delete(node) => {
                let name = node.metadata.name.unwrap_or_default();
                extender.change(|view| view.remove_node(&name));
            }
        },
    )
    .await;
}

/// Watches pods that have a node and have not ended, and never returns.
pub async fn pods(client: Client, extender: Arc<Extender>, retry: Retry) {
    let mut listed = Vec::new();
    let selected = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
    let config = watcher::Config::default().fields(selected);
    follow::<Pod>(
        "pods",
        client,
        config,
        &Arc::clone(&extender),
        retry,
        |event| match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => listed.extend(PlacedPod::of(&pod, extender.config())),
            Event::InitDone => {
                let listed = std::mem::take(&mut listed);
                extender.change(|view| view.replace_pods(listed));
            }
            Event::Apply(pod) => extender.change(|view| view.apply_pod(&pod)),
            Event::Delete(pod) => {
                let uid = pod.metadata.uid.unwrap_or_default();
                extender.change(|view| view.remove_pod(&uid));
            }
        },
    )
    .await;
}

async fn follow<K>(
    kind: &'static str,
    client: Client,
    config: watcher::Config,
    extender: &Extender,
    retry: Retry,
    mut apply: impl FnMut(Event<K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(Api::<K>::all(client), config).backoff(retry.delays());
    let mut events = std::pin::pin!(events);
    let mut failing = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if failing && matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_))
                {
                    tracing::info!("the watch of {kind} works again");
                    failing = false;
                }
                apply(event);
            }
            Err(error) => {
                let errors = &extender.metrics().watch_errors;
                errors.get_or_create(&KindLabels { kind }).inc();
                if !failing {
                    let error = anyhow::Error::from(error);
                    tracing::warn!("the watch of {kind} failed, retrying: {error:#}");
                    failing = true;
                }
            }
        }
    }
}

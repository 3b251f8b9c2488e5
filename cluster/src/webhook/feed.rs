//! Keeps the mappings up to date by watches of both kinds, and logs objects that cannot
//! be used.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::api::{AcceleratorFunction, FpgaRegion};
use super::mappings::{Kind, Object};
use super::metrics::KindLabels;
use super::review::Reviewer;
use crate::retry::Retry;

pub trait Mapped:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    const KIND: Kind;
    const PLURAL: &'static str;
    fn object(&self) -> Object;
}

impl Mapped for AcceleratorFunction {
    const KIND: Kind = Kind::Function;
    const PLURAL: &'static str = "acceleratorfunctions";

    fn object(&self) -> Object {
        Object::Function(self.spec.clone())
    }
}

impl Mapped for FpgaRegion {
    const KIND: Kind = Kind::Region;
    const PLURAL: &'static str = "fpgaregions";

    fn object(&self) -> Object {
        Object::Region(self.spec.clone())
    }
}

/// Watches one kind, and never returns.
pub async fn follow<K: Mapped>(client: Client, reviewer: Arc<Reviewer>, retry: Retry) {
    let events = watcher(Api::<K>::all(client), watcher::Config::default());
    let mut events = std::pin::pin!(events.backoff(retry.delays()));
    let mut listed: Vec<K> = Vec::new();
    let mut failing = false;
    while let Some(event) = events.next().await {
        match event {
            Err(error) => {
                let labels = KindLabels { kind: K::PLURAL };
                reviewer.metrics().watch_errors.get_or_create(&labels).inc();
                if !failing {
                    let error = anyhow::Error::from(error);
                    tracing::warn!("the watch of {} failed, retrying: {error:#}", K::PLURAL);
                }
                failing = true;
                continue;
            }
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.push(object);
                continue;
            }
            Ok(Event::InitDone) => {
                let keys: BTreeSet<_> = listed.iter().map(key).collect();
                // Before they count as listed, all of them are there.
                listed.iter().for_each(|object| set(&reviewer, object));
                reviewer.change(|mappings| mappings.keep_only(K::KIND, &keys));
                listed = Vec::new();
            }
            Ok(Event::Apply(object)) => set(&reviewer, &object),
            Ok(Event::Delete(object)) => {
                let (namespace, name) = key(&object);
                reviewer.change(|mappings| mappings.remove(&namespace, &name, K::KIND));
            }
        }
        failing = false;
    }
}

fn key<K: Mapped>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn set<K: Mapped>(reviewer: &Reviewer, object: &K) {
    let (namespace, name) = key(object);
    let problem = reviewer.change(|mappings| mappings.set(&namespace, &name, object.object()));
    if let Some(problem) = problem {
        tracing::warn!("{} {namespace}/{name}: {problem}", K::PLURAL);
    }
}

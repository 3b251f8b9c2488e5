//! Keeps the mappings up to date by watches of both kinds, and reports objects that
//! cannot be used by events.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::events::{Event as KubeEvent, EventType, Recorder, Reporter};
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
    /// Its plural, for messages.
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
    let recorder = Recorder::new(client.clone(), Reporter::from("boathook-webhook"));
    let events = watcher(Api::<K>::all(client), watcher::Config::default());
    let mut events = std::pin::pin!(events.backoff(retry.delays()));
    let mut listed: Vec<K> = Vec::new();
    let mut failing = false;
    while let Some(event) = events.next().await {
        let changed = match event {
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
                let changed = std::mem::take(&mut listed);
                // Before they count as listed, all of them are there.
                let problems = set(&reviewer, changed);
                reviewer.change(|mappings| mappings.keep_only(K::KIND, &keys));
                problems
            }
            Ok(Event::Apply(object)) => set(&reviewer, vec![object]),
            Ok(Event::Delete(object)) => {
                let (namespace, name) = key(&object);
                reviewer.change(|mappings| mappings.remove(&namespace, &name, K::KIND));
                Vec::new()
            }
        };
        failing = false;
        for (object, problem) in changed {
            report(&recorder, &object, problem).await;
        }
    }
}

fn key<K: Mapped>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Updates the mappings from a watch event; returns objects that cannot be used.
fn set<K: Mapped>(reviewer: &Reviewer, objects: Vec<K>) -> Vec<(K, String)> {
    let set = |object: K| {
        let (namespace, name) = key(&object);
        let content = object.object();
        let problem = reviewer.change(|mappings| mappings.set(&namespace, &name, content));
        problem.map(|problem| (object, problem))
    };
    objects.into_iter().filter_map(set).collect()
}

async fn report<K: Mapped>(recorder: &Recorder, object: &K, problem: String) {
    tracing::warn!(
        "{} {}/{}: {problem}",
        K::PLURAL,
        key(object).0,
        key(object).1
    );
    let event = KubeEvent {
        type_: EventType::Warning,
        reason: "CannotBeMapped".to_owned(),
        note: Some(problem),
        action: "Map".to_owned(),
        secondary: None,
    };
    // A convenience: without the right to write events there is still the log.
    if let Err(error) = recorder.publish(&event, &object.object_ref(&())).await {
        tracing::debug!("cannot write an event: {error}");
    }
}

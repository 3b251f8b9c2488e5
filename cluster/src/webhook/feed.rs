//! Watches the objects that define friendly names, AcceleratorFunctions and FpgaRegions, and keeps
//! the webhook's mappings up to date. Objects that cannot be used are logged.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use backon::ExponentialBuilder;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::api::{AcceleratorFunction, FpgaRegion};
use super::mappings::{Kind, Object};
use super::review::Reviewer;
use crate::watch;

/// A kind of object that defines friendly names.
pub trait MappedObject:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    const KIND: Kind;
    /// The name of the kind in URLs and log messages.
    const PLURAL: &'static str;
    /// Returns the object without its metadata.
    fn object(&self) -> Object;
}

impl MappedObject for AcceleratorFunction {
    const KIND: Kind = Kind::Function;
    const PLURAL: &'static str = "acceleratorfunctions";

    fn object(&self) -> Object {
        Object::Function(self.spec.clone())
    }
}

impl MappedObject for FpgaRegion {
    const KIND: Kind = Kind::Region;
    const PLURAL: &'static str = "fpgaregions";

    fn object(&self) -> Object {
        Object::Region(self.spec.clone())
    }
}

/// Watches all objects of one kind, and never returns. A failed watch is repeated after one of the
/// `delays`.
pub async fn watch_mappings<K: MappedObject>(
    client: Client,
    reviewer: Arc<Reviewer>,
    delays: ExponentialBuilder,
) {
    let mut listed: Vec<K> = Vec::new();
    let apply = |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => listed.push(object),
        Event::InitDone => {
            let keys: BTreeSet<_> = listed.iter().map(key).collect();
            // All objects are stored before `keep_only` marks the kind as listed, because the
            // webhook answers reviews from then on.
            listed.iter().for_each(|object| set(&reviewer, object));
            reviewer.change_mappings(|mappings| mappings.keep_only(K::KIND, &keys));
            listed = Vec::new();
        }
        Event::Apply(object) => set(&reviewer, &object),
        Event::Delete(object) => {
            let (namespace, name) = key(&object);
            reviewer.change_mappings(|mappings| mappings.remove(&namespace, &name, K::KIND));
        }
    };
    let errors = &reviewer.metrics().watch_errors;
    watch::watch_objects(K::PLURAL, client, Config::default(), errors, delays, apply).await;
}

/// Returns the namespace and the name of an object.
fn key<K: MappedObject>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn set<K: MappedObject>(reviewer: &Reviewer, object: &K) {
    let (namespace, name) = key(object);
    let problem =
        reviewer.change_mappings(|mappings| mappings.set(&namespace, &name, object.object()));
    if let Some(problem) = problem {
        tracing::warn!("{} {namespace}/{name}: {problem}", K::PLURAL);
    }
}

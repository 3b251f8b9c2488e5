//! Watches the AcceleratorFunction and FpgaRegion objects, and keeps the webhook's mappings up to
//! date. The objects define the friendly names by which pods request FPGAs. Objects that cannot be
//! used are logged.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use backon::ExponentialBuilder;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::api::{AcceleratorFunction, FpgaRegion};
use super::mappings::{MappingKind, MappingObject};
use super::review::Reviewer;
use crate::watch;

/// A kind of Kubernetes object that defines friendly names.
pub trait MappedObject:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    const KIND: MappingKind;
    /// The plural name of the kind, as it appears in URLs and log messages.
    const PLURAL_NAME: &'static str;
    /// Returns the object without its metadata, as the mappings store it.
    fn to_object(&self) -> MappingObject;
}

impl MappedObject for AcceleratorFunction {
    const KIND: MappingKind = MappingKind::Function;
    const PLURAL_NAME: &'static str = "acceleratorfunctions";

    fn to_object(&self) -> MappingObject {
        MappingObject::Function(self.spec.clone())
    }
}

impl MappedObject for FpgaRegion {
    const KIND: MappingKind = MappingKind::Region;
    const PLURAL_NAME: &'static str = "fpgaregions";

    fn to_object(&self) -> MappingObject {
        MappingObject::Region(self.spec.clone())
    }
}

/// Watches all objects of one kind and updates the mappings. Never returns: if the watch fails, it
/// is started again after the next delay in `retry_delays`.
pub async fn watch_mappings<K: MappedObject>(
    client: Client,
    reviewer: Arc<Reviewer>,
    retry_delays: ExponentialBuilder,
) {
    let mut initial_objects: Vec<K> = Vec::new();
    let apply_event = |event| match event {
        Event::Init => initial_objects.clear(),
        Event::InitApply(object) => initial_objects.push(object),
        Event::InitDone => {
            let keys: BTreeSet<_> = initial_objects.iter().map(build_object_key).collect();
            // First all objects are stored. Only then `retain_listed` marks the kind as listed,
            // because the webhook answers reviews from that moment on.
            initial_objects
                .iter()
                .for_each(|object| store_object(&reviewer, object));
            reviewer.change_mappings(|mappings| mappings.retain_listed(K::KIND, &keys));
            initial_objects = Vec::new();
        }
        Event::Apply(object) => store_object(&reviewer, &object),
        Event::Delete(object) => {
            let (namespace, name) = build_object_key(&object);
            reviewer.change_mappings(|mappings| mappings.remove(&namespace, &name, K::KIND));
        }
    };
    let error_counters = &reviewer.metrics().watch_errors;
    watch::watch_objects(
        K::PLURAL_NAME,
        client,
        Config::default(),
        error_counters,
        retry_delays,
        apply_event,
    )
    .await;
}

/// Returns the namespace and the name of an object, which identify it within its kind.
fn build_object_key<K: MappedObject>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn store_object<K: MappedObject>(reviewer: &Reviewer, object: &K) {
    let (namespace, name) = build_object_key(object);
    let problem =
        reviewer.change_mappings(|mappings| mappings.set(&namespace, &name, object.to_object()));
    if let Some(problem) = problem {
        tracing::warn!("{} {namespace}/{name}: {problem}", K::PLURAL_NAME);
    }
}

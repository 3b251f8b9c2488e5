//! The pods on nodes, and the units that they hold.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Asks, View};
use crate::scheduler::config::Config;
use crate::scheduler::devices::Taken;
use crate::scheduler::objects;

/// The stored parts of a pod on a node.
#[derive(Debug)]
pub struct PlacedPod {
    uid: Arc<str>,
    node: Box<str>,
    asks: Asks,
    started: Option<Time>,
}

/// What a pod holds.
#[derive(Debug)]
pub(super) struct Held {
    node: Arc<str>,
    parts: Box<[Part]>,
}

/// What a pod holds of one resource.
#[derive(Debug)]
struct Part {
    resource: usize,
    units: u64,
    claims: Box<[u64]>,
    taken: Taken,
}

impl PlacedPod {
    /// The parts of a pod to store; `None` if it has no node, has ended, or requests
    /// none of the resources.
    pub fn of(pod: &objects::Pod, config: &Config) -> Option<Self> {
        let node = pod
            .spec
            .node_name
            .as_deref()
            .filter(|name| !name.is_empty())?;
        // A quantity that no kubelet would have admitted holds nothing.
        let asks = Asks::of(pod, config).unwrap_or_default();
        let counts = !pod.is_terminal() && !asks.is_empty();
        let uid = pod.metadata.uid.as_deref().filter(|_| counts)?;
        let started = pod.status.start_time.clone();
        Some(Self {
            uid: uid.into(),
            node: node.into(),
            asks,
            started: started.or_else(|| pod.metadata.creation_timestamp.clone()),
        })
    }
}

impl Held {
    pub(super) fn claims(&self, resource: usize) -> impl Iterator<Item = &u64> {
        let parts = self
            .parts
            .iter()
            .filter(move |part| part.resource == resource);
        parts.flat_map(|part| part.claims.iter())
    }
}

impl View {
    /// Adds or updates a pod.
    pub fn apply_pod(&mut self, object: &objects::Pod) {
        let Some(uid) = object.metadata.uid.as_deref() else {
            return;
        };
        match PlacedPod::of(object, &Arc::clone(&self.config)) {
            Some(pod) => self.add_pod(pod, true),
            None if object.is_terminal() => self.remove_pod(uid),
            None => {}
        }
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, uid: &str) {
        self.forget_assumption(uid);
        let Some(held) = self.pods.remove(uid) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(&held.node) {
            node.pods.retain(|other| **other != *uid);
            for part in &held.parts {
                let resource = &mut node.resources[part.resource];
                resource.in_use = resource.in_use.saturating_sub(part.units);
                if let Some(devices) = &mut resource.devices {
                    devices.release(&part.taken);
                }
            }
        }
        self.drop_if_empty(&held.node);
    }

    /// Replaces all pods. The devices of pods that were not known before are
    /// estimated, by the order in which the pods started.
    pub fn replace_pods(&mut self, mut listed: Vec<PlacedPod>) {
        listed.sort_by(|a, b| (&a.started, &a.uid).cmp(&(&b.started, &b.uid)));
        let nodes: HashMap<&str, &str> = listed.iter().map(|pod| (&*pod.uid, &*pod.node)).collect();
        let known = self.pods.iter();
        let gone = known.filter(|(uid, held)| nodes.get(&***uid) != Some(&&*held.node));
        let gone: Vec<Arc<str>> = gone.map(|(uid, _)| Arc::clone(uid)).collect();
        for uid in gone {
            let node = self.pods.get(&uid).map(|held| Arc::clone(&held.node));
            self.remove_pod(&uid);
            // Other pods that came and went in between were not observed.
            node.into_iter().for_each(|node| self.doubt(&node));
        }
        for pod in listed {
            self.add_pod(pod, false);
        }
        self.pods_listed = true;
    }

    /// Adds a pod that is not known yet. What a pod holds never changes: requests for
    /// extended resources are immutable, and so is a pod's node.
    fn add_pod(&mut self, pod: PlacedPod, seen: bool) {
        self.forget_assumption(&pod.uid);
        if self.pods.contains_key(&pod.uid) {
            return;
        }
        let node = self.node(&pod.node);
        let mut parts = Vec::new();
        for ask in pod.asks.0 {
            let resource = &mut node.resources[ask.resource];
            resource.in_use = resource.in_use.saturating_add(ask.units);
            let devices = resource.devices.as_mut();
            let taken = devices.map(|devices| devices.take(&ask.claims));
            parts.push(Part {
                resource: ask.resource,
                units: ask.units,
                claims: ask.claims.into(),
                taken: taken.unwrap_or_default(),
            });
        }
        node.pods.push(Arc::clone(&pod.uid));
        if !seen {
            self.doubt(&pod.node);
        }
        let key = self.nodes.get_key_value(&*pod.node);
        let node = key.map_or_else(|| (*pod.node).into(), |(name, _)| Arc::clone(name));
        let held = Held {
            node,
            parts: parts.into(),
        };
        self.pods.insert(pod.uid, held);
    }

    /// Places a node's pods again, because its devices have changed.
    pub(super) fn place_again(&mut self, name: &str, resource: usize) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        for uid in &node.pods {
            let held = self.pods.get_mut(uid);
            let parts = held.into_iter().flat_map(|held| held.parts.iter_mut());
            for part in parts.filter(|part| part.resource == resource) {
                let devices = node.resources[resource].devices.as_mut();
                let taken = devices.map(|devices| devices.take(&part.claims));
                part.taken = taken.unwrap_or_default();
            }
        }
        self.doubt(name);
    }

    fn doubt(&mut self, name: &str) {
        let node = self.nodes.get_mut(name).into_iter();
        let resources = node.flat_map(|node| node.resources.iter_mut());
        for devices in resources.filter_map(|resource| resource.devices.as_mut()) {
            devices.doubt();
        }
    }
}

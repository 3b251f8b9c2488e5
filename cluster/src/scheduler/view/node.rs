//! A node, and the units in use on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::View;
use crate::quantity;
use crate::scheduler::config::{Config, Layout};
use crate::scheduler::devices::Devices;
use crate::scheduler::objects;

#[derive(Debug)]
pub(super) struct Node {
    /// One for each configured resource.
    pub(super) resources: Box<[NodeResource]>,
    /// The uids of the pods on it.
    pub(super) pods: Vec<Arc<str>>,
    /// A pod may be seen before its node.
    listed: bool,
}

#[derive(Debug, Default)]
pub(super) struct NodeResource {
    /// The units of healthy devices.
    pub(super) allocatable: u64,
    /// The units of the pods on it.
    pub(super) in_use: u64,
    /// The units of pods that are assumed to be on it.
    pub(super) assumed: u64,
    /// Its devices, if their layout is configured and agrees with the capacity.
    pub(super) devices: Option<Devices>,
}

impl Node {
    fn unlisted(config: &Config) -> Self {
        let resources = config.resources.iter();
        Self {
            resources: resources.map(|_| NodeResource::default()).collect(),
            pods: Vec::new(),
            listed: false,
        }
    }

    /// Whether the API server has listed it.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }
}

impl View {
    /// Adds or updates a node.
    pub fn apply_node(&mut self, object: &objects::Node) {
        let Some(name) = object.metadata.name.as_deref() else {
            return;
        };
        let labels = object.metadata.labels.as_ref();
        let config = Arc::clone(&self.config);
        let node = self.node(name);
        node.listed = true;
        let mut rebuilt = Vec::new();
        for (at, (resource, known)) in config.resources.iter().zip(&mut node.resources).enumerate()
        {
            let amount = |amounts: &objects::Amounts| {
                let text = amounts.get(&resource.name);
                text.map_or(Ok(0), |text| quantity::units(text))
            };
            // What is no number of devices counts as none.
            let allocatable = amount(&object.status.allocatable).unwrap_or(0);
            let capacity = amount(&object.status.capacity)
                .unwrap_or(0)
                .max(allocatable);
            known.allocatable = allocatable;
            let layouts = &resource.layouts;
            let layout = layouts.iter().find(|layout| layout.is_of(labels));
            let same = match (&known.devices, layout) {
                (Some(devices), Some(layout)) => devices.are(layout, capacity),
                (None, None) => true,
                _ => false,
            };
            if !same {
                known.devices =
                    layout.and_then(|layout| Devices::new(&Arc::new(layout.clone()), capacity));
                rebuilt.push(at);
            }
            if let Some(devices) = &mut known.devices {
                devices.set_unhealthy(capacity - allocatable);
            }
        }
        for resource in rebuilt {
            self.place_again(name, resource);
        }
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        // Its pods are removed later, each by itself.
        node.listed = false;
        self.drop_if_empty(name);
    }

    /// Replaces all nodes.
    pub fn replace_nodes(&mut self, objects: &[objects::Node]) {
        let listed = objects
            .iter()
            .filter_map(|node| node.metadata.name.as_deref());
        let listed: std::collections::HashSet<&str> = listed.collect();
        let known = self.nodes.keys().filter(|name| !listed.contains(&***name));
        let gone: Vec<Arc<str>> = known.cloned().collect();
        for name in gone {
            self.remove_node(&name);
        }
        for object in objects {
            self.apply_node(object);
        }
        self.nodes_listed = true;
    }

    /// The node of this name, which may not have been listed yet.
    pub(super) fn node(&mut self, name: &str) -> &mut Node {
        let known = self.nodes.get_key_value(name);
        let key = known.map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        let config = &self.config;
        let entry = self.nodes.entry(key);
        entry.or_insert_with(|| Node::unlisted(config))
    }

    /// Removes a node that is not listed and has no pods.
    pub(super) fn drop_if_empty(&mut self, name: &str) {
        let node = self.nodes.get(name);
        if node.is_some_and(|node| !node.listed && node.pods.is_empty()) {
            self.nodes.remove(name);
        }
    }
}

impl Layout {
    fn is_of(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.labels
            .iter()
            .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    }
}

//! The extender's view of the cluster: the nodes and the pods on them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::bin_packing::min_devices;
use super::config::Config;
use super::demand::demand;
use super::objects;
use super::score::{Load, score};
use crate::quantity;

/// A pod's requests for the configured resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequest(Box<[ResourceRequest]>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ResourceRequest {
    /// The resource's index in the configuration.
    resource: usize,
    units: u64,
    portions: Box<[u64]>,
}

/// The parts of a pod on a node that are stored.
#[derive(Debug)]
pub struct PlacedPod {
    uid: Arc<str>,
    node: Arc<str>,
    request: PodRequest,
}

#[derive(Debug)]
struct Node {
    /// The node's resources, one entry for each configured resource.
    resources: Box<[NodeResource]>,
    pods: usize,
    /// Whether the node was listed. A pod may be seen before its node is listed, and after the
    /// node is removed.
    listed: bool,
}

#[derive(Debug, Clone, Default)]
struct NodeResource {
    /// The units of healthy devices.
    allocatable: u64,
    /// The units of the pods on the node.
    in_use: u64,
    devices: Option<Devices>,
    /// The units that the kubelet allocated at once, one number for each container.
    portions: Vec<u64>,
}

/// The devices of a node, if they are configured and agree with the capacity.
#[derive(Debug, Clone, Copy)]
struct Devices {
    count: u64,
    units: u64,
}

#[derive(Debug)]
pub struct View {
    config: Arc<Config>,
    nodes: HashMap<Arc<str>, Node>,
    pods: HashMap<Arc<str>, PlacedPod>,
    nodes_listed: bool,
    pods_listed: bool,
}

impl PodRequest {
    /// Reads a pod's requests. Returns `None` if a quantity is not valid for devices.
    pub fn from_pod(pod: &objects::Pod, config: &Config) -> Option<Self> {
        let mut request = Vec::new();
        for (resource, configured) in config.resources.iter().enumerate() {
            let demand = demand(pod, configured.name.as_str())?;
            if demand.units > 0 {
                request.push(ResourceRequest {
                    resource,
                    units: demand.units,
                    portions: demand.portions.into(),
                });
            }
        }
        Some(Self(request.into()))
    }

    /// Returns whether the pod requests none of the configured resources.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PlacedPod {
    /// Returns the parts of a pod to store. Returns `None` if the pod has no node, has ended,
    /// or requests none of the resources.
    pub fn from_pod(pod: &objects::Pod, config: &Config) -> Option<Self> {
        let node = pod.spec.node_name.as_deref();
        let node = node.filter(|name| !name.is_empty())?;
        // No kubelet admits a pod with an invalid quantity, so that such a pod holds nothing.
        let request = PodRequest::from_pod(pod, config).unwrap_or_default();
        let counts = !pod.is_terminal() && !request.is_empty();
        let uid = pod.metadata.uid.as_deref().filter(|_| counts)?;
        Some(Self {
            uid: uid.into(),
            node: node.into(),
            request,
        })
    }
}

impl View {
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            nodes_listed: false,
            pods_listed: false,
        }
    }

    /// Returns whether all nodes and pods have been listed once.
    pub fn is_complete(&self) -> bool {
        self.nodes_listed && self.pods_listed
    }

    /// Returns the numbers of nodes, and of pods with the resources.
    pub fn size(&self) -> (usize, usize) {
        let nodes = self.nodes.values().filter(|node| node.listed);
        (nodes.count(), self.pods.len())
    }

    /// Returns the reason why no device of a node can have room for a pod with this request, or
    /// `None` if a device may have room.
    pub fn refusal(&self, request: &PodRequest, name: &str) -> Option<String> {
        let node = self.nodes.get(name).filter(|node| node.listed)?;
        request.0.iter().find_map(|resource_request| {
            let resource = &node.resources[resource_request.resource];
            let Devices { count, units } = resource.devices?;
            let name = &self.config.resources[resource_request.resource].name;
            if let Some(portion) = resource_request
                .portions
                .iter()
                .find(|portion| **portion > units)
            {
                return Some(format!(
                    "no device has {portion} units of {name}, each has {units}"
                ));
            }
            let portions = [&resource.portions, &*resource_request.portions].concat();
            (min_devices(&portions, units) > count).then(|| {
                let wanted: Vec<String> = resource_request
                    .portions
                    .iter()
                    .map(u64::to_string)
                    .collect();
                format!("no device has {} free units of {name}", wanted.join(" + "))
            })
        })
    }

    /// Returns the score of a node for a pod with this request.
    pub fn score(&self, request: &PodRequest, name: &str) -> u8 {
        let Some(node) = self.nodes.get(name).filter(|node| node.listed) else {
            return 0;
        };
        score(request.0.iter().map(|resource_request| {
            let resource = &node.resources[resource_request.resource];
            Load {
                requested: resource_request.units,
                in_use: resource.in_use,
                total: resource.allocatable,
                weight: self.config.resources[resource_request.resource].weight,
            }
        }))
    }

    pub fn apply_node(&mut self, object: &objects::Node) {
        let Some(name) = object.metadata.name.as_deref() else {
            return;
        };
        let config = Arc::clone(&self.config);
        let node = self.get_or_add_node(name);
        node.listed = true;
        for (resource, known) in config.resources.iter().zip(&mut node.resources) {
            // An invalid quantity counts as 0.
            let amount = |amounts: &objects::Amounts| {
                let text = amounts.get(resource.name.as_str());
                text.map_or(0, |text| quantity::units(text).unwrap_or(0))
            };
            known.allocatable = amount(&object.status.allocatable);
            let capacity = amount(&object.status.capacity).max(known.allocatable);
            let units = resource.units_per_device(object.metadata.labels.as_ref());
            known.devices = units
                .filter(|units| capacity.is_multiple_of(*units))
                .map(|units| Devices {
                    count: capacity / units,
                    units,
                });
        }
    }

    /// Removes a node. Its pods are removed by their own events.
    pub fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.listed = false;
            self.remove_unused_node(name);
        }
    }

    pub fn replace_nodes(&mut self, objects: &[objects::Node]) {
        let names = objects
            .iter()
            .filter_map(|node| node.metadata.name.as_deref());
        let listed: HashSet<&str> = names.collect();
        for (name, node) in &mut self.nodes {
            node.listed = listed.contains(&**name);
        }
        self.nodes.retain(|_, node| node.listed || node.pods > 0);
        for object in objects {
            self.apply_node(object);
        }
        self.nodes_listed = true;
    }

    pub fn apply_pod(&mut self, object: &objects::Pod) {
        match PlacedPod::from_pod(object, &Arc::clone(&self.config)) {
            Some(pod) => self.add_pod(pod),
            None if object.is_terminal() => {
                let uid = object.metadata.uid.as_deref();
                uid.into_iter().for_each(|uid| self.remove_pod(uid));
            }
            None => {}
        }
    }

    pub fn remove_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else {
            return;
        };
        let node = self.get_or_add_node(&pod.node);
        node.pods -= 1;
        for resource_request in &pod.request.0 {
            let resource = &mut node.resources[resource_request.resource];
            resource.in_use = resource.in_use.saturating_sub(resource_request.units);
            for portion in &resource_request.portions {
                let index = resource.portions.iter().position(|known| known == portion);
                if let Some(index) = index {
                    resource.portions.swap_remove(index);
                }
            }
        }
        self.remove_unused_node(&pod.node);
    }

    pub fn replace_pods(&mut self, listed: Vec<PlacedPod>) {
        let listed_uids: HashSet<&str> = listed.iter().map(|pod| &*pod.uid).collect();
        let removed = self
            .pods
            .keys()
            .filter(|uid| !listed_uids.contains(&***uid));
        let removed: Vec<Arc<str>> = removed.cloned().collect();
        removed.iter().for_each(|uid| self.remove_pod(uid));
        listed.into_iter().for_each(|pod| self.add_pod(pod));
        self.pods_listed = true;
    }

    /// Adds a pod that is not known yet. A known pod never changes: requests for extended
    /// resources are immutable, and so is the pod's node.
    fn add_pod(&mut self, mut pod: PlacedPod) {
        if self.pods.contains_key(&pod.uid) {
            return;
        }
        let node = self.get_or_add_node(&pod.node);
        node.pods += 1;
        for resource_request in &pod.request.0 {
            let resource = &mut node.resources[resource_request.resource];
            resource.in_use = resource.in_use.saturating_add(resource_request.units);
            resource.portions.extend(&resource_request.portions);
        }
        // All pods of a node share one text with its name.
        if let Some((name, _)) = self.nodes.get_key_value(&pod.node) {
            pod.node = Arc::clone(name);
        }
        self.pods.insert(Arc::clone(&pod.uid), pod);
    }

    /// Returns the node with this name, and creates it if it has not been listed yet.
    fn get_or_add_node(&mut self, name: &str) -> &mut Node {
        let known = self.nodes.get_key_value(name);
        let key = known.map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        self.nodes.entry(key).or_insert_with(|| Node {
            resources: vec![NodeResource::default(); self.config.resources.len()].into(),
            pods: 0,
            listed: false,
        })
    }

    /// Removes a node that is not listed and has no pods.
    fn remove_unused_node(&mut self, name: &str) {
        let node = self.nodes.get(name);
        if node.is_some_and(|node| !node.listed && node.pods == 0) {
            self.nodes.remove(name);
        }
    }
}

//! The extender's view of the cluster: the nodes, and the units that pods on them use.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::bin_packing::min_devices;
use super::config::Config;
use super::demand::compute_demand;
use super::objects;
use super::score::{ResourceUsage, compute_score};
use crate::quantity;

/// The configured resources that a pod requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequest(Box<[ResourceRequest]>);

/// A pod's demand for one of the configured resources. The fields are those of
/// [`Demand`](super::demand::Demand).
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResourceRequest {
    /// The index of the resource in the configuration.
    resource: usize,
    units: u64,
    portions: Box<[u64]>,
}

/// A pod that is bound to a node and uses some of the configured resources. Nothing else of the
/// pod is stored, because a cluster may have 150,000 pods.
#[derive(Debug)]
pub struct PlacedPod {
    uid: Arc<str>,
    node: Arc<str>,
    request: PodRequest,
}

#[derive(Debug)]
struct Node {
    /// One entry for each configured resource, in the order of the configuration.
    resources: Box<[NodeResource]>,
    /// The number of stored pods on the node.
    pods: usize,
    /// Whether the API server has the node. The watch of pods may report a pod before the watch
    /// of nodes reports its node, and still after the node was deleted.
    is_listed: bool,
}

/// The state of one resource on one node.

#[derive(Debug, Clone, Default)]
struct NodeResource {
    /// The number of units of healthy devices.
    allocatable: u64,
    /// The number of units that the pods on the node use.
    in_use: u64,
    /// The devices of the node, or `None` if no layout applies to the node, or if the node's
    /// capacity is not a multiple of the layout's units.
    devices: Option<DeviceSizes>,
    /// The numbers of units that containers on the node use, each on a single device.
    portions: Vec<u64>,
}

/// The number of devices of a node, and the number of units of each.
#[derive(Debug, Clone, Copy)]
struct DeviceSizes {
    count: u64,
    units: u64,
}

/// The nodes of the cluster and the pods on them, as the watches have reported them.
#[derive(Debug)]
pub struct ClusterView {
    config: Arc<Config>,
    nodes: HashMap<Arc<str>, Node>,
    pods: HashMap<Arc<str>, PlacedPod>,
    has_listed_nodes: bool,
    has_listed_pods: bool,
}

impl PodRequest {
    /// Computes the requests of a pod. Returns `None` if a quantity is not valid for devices.
    pub fn from_pod(pod: &objects::Pod, config: &Config) -> Option<Self> {
        let mut request = Vec::new();
        for (resource, configured) in config.resources.iter().enumerate() {
            let demand = compute_demand(pod, configured.name.as_str())?;
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
    /// Returns the pod as it is stored. Returns `None` if the pod is not bound to a node, has
    /// ended, or requests none of the configured resources.
    pub fn from_pod(pod: &objects::Pod, config: &Config) -> Option<Self> {
        let node = pod.spec.node_name.as_deref();
        let node = node.filter(|name| !name.is_empty())?;
        // The kubelet does not admit a pod with an invalid quantity, so such a pod uses nothing.
        let request = PodRequest::from_pod(pod, config).unwrap_or_default();
        if pod.is_terminal() || request.is_empty() {
            return None;
        }
        Some(Self {
            uid: pod.metadata.uid.as_deref()?.into(),
            node: node.into(),
            request,
        })
    }
}

impl ClusterView {
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            has_listed_nodes: false,
            has_listed_pods: false,
        }
    }

    /// Returns whether the view has all nodes and pods: both lists of the API server were read
    /// completely at least once.
    pub fn is_complete(&self) -> bool {
        self.has_listed_nodes && self.has_listed_pods
    }

    /// Returns the number of nodes, and the number of pods that use configured resources.
    pub fn size(&self) -> (usize, usize) {
        let nodes = self.nodes.values().filter(|node| node.is_listed);
        (nodes.count(), self.pods.len())
    }

    /// Returns the reason why no device of the node `name` can have room for a pod with this
    /// request. Returns `None` if a device may have room, or if the sizes of the node's devices
    /// are not known.
    pub fn refusal(&self, request: &PodRequest, name: &str) -> Option<String> {
        let node = self.nodes.get(name).filter(|node| node.is_listed)?;
        request.0.iter().find_map(|resource_request| {
            let resource = &node.resources[resource_request.resource];
            let DeviceSizes { count, units } = resource.devices?;
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
                let requested: Vec<String> = resource_request
                    .portions
                    .iter()
                    .map(u64::to_string)
                    .collect();
                let requested = requested.join(" + ");
                format!("no device has {requested} free units of {name}")
            })
        })
    }

    /// Returns the score of the node `name` for a pod with this request. An unknown node has the
    /// score 0.
    pub fn score(&self, request: &PodRequest, name: &str) -> u8 {
        let Some(node) = self.nodes.get(name).filter(|node| node.is_listed) else {
            return 0;
        };
        compute_score(request.0.iter().map(|resource_request| {
            let resource = &node.resources[resource_request.resource];
            ResourceUsage {
                requested: resource_request.units,
                in_use: resource.in_use,
                total: resource.allocatable,
                weight: self.config.resources[resource_request.resource].weight,
            }
        }))
    }

    /// Adds a node, or updates it. A node without a name is ignored.
    pub fn apply_node(&mut self, object: &objects::Node) {
        let Some(name) = object.metadata.name.as_deref() else {
            return;
        };
        let config = Arc::clone(&self.config);
        let node = self.get_or_add_node(name);
        node.is_listed = true;
        for (configured, resource) in config.resources.iter().zip(&mut node.resources) {
            // A missing or invalid quantity counts as 0.
            let parse_amount = |amounts: &objects::Amounts| {
                let text = amounts.get(configured.name.as_str());
                text.map_or(0, |text| quantity::parse_units(text).unwrap_or(0))
            };
            resource.allocatable = parse_amount(&object.status.allocatable);
            let capacity = parse_amount(&object.status.capacity).max(resource.allocatable);
            let units = configured.units_per_device(object.metadata.labels.as_ref());
            resource.devices = units
                .filter(|units| capacity.is_multiple_of(*units))
                .map(|units| DeviceSizes {
                    count: capacity / units,
                    units,
                });
        }
    }

    /// Removes a node. The pods of the node stay in the view until the watch of pods reports that
    /// they were deleted.
    pub fn remove_node(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.is_listed = false;
            self.remove_unused_node(name);
        }
    }

    /// Replaces all nodes by those of a complete list of the API server.
    pub fn replace_nodes(&mut self, objects: &[objects::Node]) {
        let listed_names: HashSet<&str> = objects
            .iter()
            .filter_map(|node| node.metadata.name.as_deref())
            .collect();
        for (name, node) in &mut self.nodes {
            node.is_listed = listed_names.contains(&**name);
        }
        self.nodes.retain(|_, node| node.is_listed || node.pods > 0);
        for object in objects {
            self.apply_node(object);
        }
        self.has_listed_nodes = true;
    }

    /// Adds a pod if it uses configured resources, and removes it if it has ended.
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
                // Portions of the same size are interchangeable, so any one of them is removed.
                let index = resource
                    .portions
                    .iter()
                    .position(|stored| stored == portion);
                if let Some(index) = index {
                    resource.portions.swap_remove(index);
                }
            }
        }
        self.remove_unused_node(&pod.node);
    }

    /// Replaces all pods by those of a complete list of the API server.
    pub fn replace_pods(&mut self, listed: Vec<PlacedPod>) {
        let listed_uids: HashSet<&str> = listed.iter().map(|pod| &*pod.uid).collect();
        let removed_uids: Vec<Arc<str>> = self
            .pods
            .keys()
            .filter(|uid| !listed_uids.contains(&***uid))
            .cloned()
            .collect();
        removed_uids.iter().for_each(|uid| self.remove_pod(uid));
        listed.into_iter().for_each(|pod| self.add_pod(pod));
        self.has_listed_pods = true;
    }

    /// Adds a pod, unless the view already has it. A pod that the view has need not be updated,
    /// because a pod's node and its requests for extended resources are immutable.
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
        // All pods of a node share one allocation of the node's name, to save memory.
        if let Some((name, _)) = self.nodes.get_key_value(&pod.node) {
            pod.node = Arc::clone(name);
        }
        self.pods.insert(Arc::clone(&pod.uid), pod);
    }

    /// Returns the node `name`. If the view does not have it, it is added as a node that the API
    /// server has not listed.
    fn get_or_add_node(&mut self, name: &str) -> &mut Node {
        let existing = self.nodes.get_key_value(name);
        let key = existing.map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        self.nodes.entry(key).or_insert_with(|| Node {
            resources: vec![NodeResource::default(); self.config.resources.len()].into(),
            pods: 0,
            is_listed: false,
        })
    }

    /// Removes the node `name` if the API server does not have it and no stored pod is on it.
    fn remove_unused_node(&mut self, name: &str) {
        let node = self.nodes.get(name);
        if node.is_some_and(|node| !node.is_listed && node.pods == 0) {
            self.nodes.remove(name);
        }
    }
}

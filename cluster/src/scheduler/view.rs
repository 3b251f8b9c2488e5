//! Implements the extender's view of the cluster: its nodes, and the units that the pods on these
//! nodes use.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::bin_packing::compute_min_devices;
use super::config::Config;
use super::demand::compute_demand;
use super::objects;
use super::score::{ResourceUsage, compute_score};
use crate::quantity;

/// The units that a pod needs of each configured resource that it requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequest(Box<[ResourceRequest]>);

/// A pod's demand for one configured resource: the number of its units in total, and the units of
/// each container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResourceRequest {
    resource_index: usize,
    units: u64,
    unit_requests: Box<[u64]>,
}

/// A pod that is bound to a node and uses some of the configured resources. Only these fields are
/// stored, because a cluster may have 150,000 pods.
#[derive(Debug)]
pub struct BoundPod {
    uid: Arc<str>,
    node_name: Arc<str>,
    request: PodRequest,
}

#[derive(Debug)]
struct Node {
    /// One entry for each configured resource, in the order of the configuration.
    resources: Box<[NodeResource]>,
    /// The number of stored pods on the node.
    pod_count: usize,
    /// Whether the API server has listed the node. If not, the node is stored because a pod is on
    /// it. The watch of pods may report the pod earlier than the watch of nodes reports the node,
    /// or when the node has already been deleted.
    is_listed: bool,
}

/// The state of one resource on one node.
#[derive(Debug, Clone, Default)]
struct NodeResource {
    /// The number of units that the healthy devices have.
    allocatable_units: u64,
    /// The number of units that pods on the node use.
    used_units: u64,
    /// The number and the size of the node's devices. `None` means that they are unknown: no layout
    /// of the configuration matches the node, or the node's capacity is not a multiple of the
    /// layout's units per device.
    device_sizes: Option<DeviceSizes>,
    /// The unit requests of the pods on the node, with one number of units for each container. All
    /// units of one container are on one device.
    unit_requests: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct DeviceSizes {
    device_count: u64,
    units_per_device: u64,
}

/// The nodes of the cluster and the pods on them, as the watches have reported them.
#[derive(Debug)]
pub struct ClusterView {
    config: Arc<Config>,
    nodes: HashMap<Arc<str>, Node>,
    pods: HashMap<Arc<str>, BoundPod>,
    has_listed_nodes: bool,
    has_listed_pods: bool,
}

impl PodRequest {
    /// Computes how much a pod requests of each configured resource. Returns `None` if a quantity
    /// is not a whole number, such as `500m`.
    pub fn from_pod(pod: &objects::Pod, config: &Config) -> Option<Self> {
        let mut request = Vec::new();
        for (resource_index, configured_resource) in config.resources.iter().enumerate() {
            let demand = compute_demand(pod, configured_resource.name.as_str())?;
            if demand.units > 0 {
                request.push(ResourceRequest {
                    resource_index,
                    units: demand.units,
                    unit_requests: demand.unit_requests.into(),
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

impl BoundPod {
    /// Converts a pod to the form in which the view stores it. Returns `None` if the pod is not
    /// bound to a node, has ended, or requests none of the configured resources.
    pub fn from_pod(pod: &objects::Pod, config: &Config) -> Option<Self> {
        let node_name = pod.spec.node_name.as_deref();
        let node_name = node_name.filter(|name| !name.is_empty())?;
        // A pod with an invalid quantity uses no units, because the kubelet does not admit such a
        // pod.
        let request = PodRequest::from_pod(pod, config).unwrap_or_default();
        if pod.is_terminal() || request.is_empty() {
            return None;
        }
        Some(Self {
            uid: pod.metadata.uid.as_deref()?.into(),
            node_name: node_name.into(),
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

    /// Returns whether the view is complete: the lists of all nodes and of all pods have been read
    /// from the API server at least once.
    pub fn is_complete(&self) -> bool {
        self.has_listed_nodes && self.has_listed_pods
    }

    /// Returns the number of nodes, and the number of pods that use configured resources.
    pub fn count_nodes_and_pods(&self) -> (usize, usize) {
        let nodes = self.nodes.values().filter(|node| node.is_listed);
        (nodes.count(), self.pods.len())
    }

    /// Returns the reason why the devices of the node `node_name` have no room for a pod with this
    /// request. Returns `None` if they may have room, or if the sizes of the devices are unknown.
    pub fn find_refusal_reason(&self, request: &PodRequest, node_name: &str) -> Option<String> {
        let node = self.nodes.get(node_name).filter(|node| node.is_listed)?;
        request.0.iter().find_map(|resource_request| {
            let resource = &node.resources[resource_request.resource_index];
            let DeviceSizes {
                device_count,
                units_per_device,
            } = resource.device_sizes?;
            let name = &self.config.resources[resource_request.resource_index].name;
            if let Some(unit_request) = resource_request
                .unit_requests
                .iter()
                .find(|unit_request| **unit_request > units_per_device)
            {
                return Some(format!(
                    "no device has {unit_request} units of {name}, each has {units_per_device}"
                ));
            }
            let unit_requests =
                [&resource.unit_requests, &*resource_request.unit_requests].concat();
            (compute_min_devices(&unit_requests, units_per_device) > device_count).then(|| {
                let request_texts: Vec<String> = resource_request
                    .unit_requests
                    .iter()
                    .map(u64::to_string)
                    .collect();
                let requested_units = request_texts.join(" + ");
                format!("no device has {requested_units} free units of {name}")
            })
        })
    }

    /// Returns the score of the node `node_name` for a pod with this request. An unknown node has
    /// the score 0.
    pub fn compute_score(&self, request: &PodRequest, node_name: &str) -> u8 {
        let Some(node) = self.nodes.get(node_name).filter(|node| node.is_listed) else {
            return 0;
        };
        compute_score(request.0.iter().map(|resource_request| {
            let resource = &node.resources[resource_request.resource_index];
            ResourceUsage {
                requested_units: resource_request.units,
                used_units: resource.used_units,
                total_units: resource.allocatable_units,
                weight: self.config.resources[resource_request.resource_index].weight,
            }
        }))
    }

    /// Adds or updates a node. A node without a name is ignored.
    pub fn apply_node(&mut self, object: &objects::Node) {
        let Some(name) = object.metadata.name.as_deref() else {
            return;
        };
        let config = Arc::clone(&self.config);
        let node = self.get_or_add_node(name);
        node.is_listed = true;
        for (configured_resource, resource) in config.resources.iter().zip(&mut node.resources) {
            // A quantity that is missing or invalid counts as 0 units.
            let parse_quantity = |quantities: &objects::Quantities| {
                let quantity_text = quantities.get(configured_resource.name.as_str());
                quantity_text.map_or(0, |text| quantity::parse_units(text).unwrap_or(0))
            };
            resource.allocatable_units = parse_quantity(&object.status.allocatable);
            let capacity = parse_quantity(&object.status.capacity).max(resource.allocatable_units);
            let units = configured_resource.find_units_per_device(object.metadata.labels.as_ref());
            resource.device_sizes =
                units
                    .filter(|units| capacity.is_multiple_of(*units))
                    .map(|units| DeviceSizes {
                        device_count: capacity / units,
                        units_per_device: units,
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

    /// Replaces all nodes by `objects`, which is the complete list of the API server's nodes.
    pub fn replace_nodes(&mut self, objects: &[objects::Node]) {
        let listed_names: HashSet<&str> = objects
            .iter()
            .filter_map(|node| node.metadata.name.as_deref())
            .collect();
        for (name, node) in &mut self.nodes {
            node.is_listed = listed_names.contains(&**name);
        }
        self.nodes
            .retain(|_, node| node.is_listed || node.pod_count > 0);
        for object in objects {
            self.apply_node(object);
        }
        self.has_listed_nodes = true;
    }

    /// Adds a pod if it uses configured resources. Removes the pod if it has ended.
    pub fn apply_pod(&mut self, object: &objects::Pod) {
        match BoundPod::from_pod(object, &Arc::clone(&self.config)) {
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
        let node = self.get_or_add_node(&pod.node_name);
        node.pod_count -= 1;
        for resource_request in &pod.request.0 {
            let resource = &mut node.resources[resource_request.resource_index];
            resource.used_units = resource.used_units.saturating_sub(resource_request.units);
            for unit_request in &resource_request.unit_requests {
                // The view does not store which pod has which entry of `unit_requests`. Any entry
                // of the same size can be removed, because equal entries are interchangeable.
                let index = resource
                    .unit_requests
                    .iter()
                    .position(|stored_request| stored_request == unit_request);
                if let Some(index) = index {
                    resource.unit_requests.swap_remove(index);
                }
            }
        }
        self.remove_unused_node(&pod.node_name);
    }

    /// Replaces all pods by `listed_pods`, which is the complete list of the API server's pods.
    pub fn replace_pods(&mut self, listed_pods: Vec<BoundPod>) {
        let listed_uids: HashSet<&str> = listed_pods.iter().map(|pod| &*pod.uid).collect();
        let removed_uids: Vec<Arc<str>> = self
            .pods
            .keys()
            .filter(|uid| !listed_uids.contains(&***uid))
            .cloned()
            .collect();
        removed_uids.iter().for_each(|uid| self.remove_pod(uid));
        listed_pods.into_iter().for_each(|pod| self.add_pod(pod));
        self.has_listed_pods = true;
    }

    /// Adds a pod if it is not in the view yet. A pod that is already in the view is not updated,
    /// because the node of a pod and its requests for extended resources are immutable.
    fn add_pod(&mut self, mut pod: BoundPod) {
        if self.pods.contains_key(&pod.uid) {
            return;
        }
        let node = self.get_or_add_node(&pod.node_name);
        node.pod_count += 1;
        for resource_request in &pod.request.0 {
            let resource = &mut node.resources[resource_request.resource_index];
            resource.used_units = resource.used_units.saturating_add(resource_request.units);
            resource
                .unit_requests
                .extend(&resource_request.unit_requests);
        }
        // All pods of a node refer to the same copy of the node's name, to save memory.
        if let Some((name, _)) = self.nodes.get_key_value(&pod.node_name) {
            pod.node_name = Arc::clone(name);
        }
        self.pods.insert(Arc::clone(&pod.uid), pod);
    }

    /// Returns the node `name`. If the view does not have this node, adds it as a node that the API
    /// server has not listed.
    fn get_or_add_node(&mut self, name: &str) -> &mut Node {
        let existing_entry = self.nodes.get_key_value(name);
        let key = existing_entry.map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        self.nodes.entry(key).or_insert_with(|| Node {
            resources: vec![NodeResource::default(); self.config.resources.len()].into(),
            pod_count: 0,
            is_listed: false,
        })
    }

    /// Removes the node `name` if the API server does not have it and no stored pod is on it.
    fn remove_unused_node(&mut self, name: &str) {
        let node = self.nodes.get(name);
        if node.is_some_and(|node| !node.is_listed && node.pod_count == 0) {
            self.nodes.remove(name);
        }
    }
}

//! The extender's view of the cluster: nodes, the pods on them, and the pods
//! that were probably just placed.

mod assumed;
mod node;
mod pods;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::config::{Config, ScoreBy};
use super::demand::demand;
use super::objects;
use super::score::{score, weighted};
use crate::quantity::QuantityError;

use assumed::Assumptions;
use node::Node;
pub use pods::PlacedPod;

/// A pod's requests for the configured resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks(Vec<Ask>);

/// A pod's request for one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ask {
    /// The resource's index in the configuration.
    resource: usize,
    units: u64,
    claims: Vec<u64>,
}

/// Whether a pod can run on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As far as is known.
    Fits,
    /// No device has room, for this reason.
    Refused(String),
}

/// The known state of the cluster.
#[derive(Debug)]
pub struct View {
    config: Arc<Config>,
    nodes: HashMap<Arc<str>, Node>,
    pods: HashMap<Arc<str>, pods::Held>,
    assumptions: Assumptions,
    nodes_listed: bool,
    pods_listed: bool,
}

impl Asks {
    /// What a pod requests.
    pub fn of(pod: &objects::Pod, config: &Config) -> Result<Self, QuantityError> {
        let mut asks = Vec::new();
        for (at, resource) in config.resources.iter().enumerate() {
            let demand = demand(pod, &resource.name)?;
            if demand.units > 0 {
                asks.push(Ask {
                    resource: at,
                    units: demand.units,
                    claims: demand.claims,
                });
            }
        }
        Ok(Self(asks))
    }

    /// Whether it requests none of the configured resources.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl View {
    /// An empty view.
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            assumptions: Assumptions::default(),
            nodes_listed: false,
            pods_listed: false,
        }
    }

    /// Whether all nodes and pods have been listed once.
    pub fn is_complete(&self) -> bool {
        self.nodes_listed && self.pods_listed
    }

    /// How many nodes and pods with the resources there are.
    pub fn size(&self) -> (usize, usize) {
        let nodes = self.nodes.values().filter(|node| node.is_listed());
        (nodes.count(), self.pods.len())
    }

    /// How many units of each device of a node are free, known or estimated.
    pub fn free_units(&self, name: &str, resource: usize) -> Option<&[u32]> {
        let devices = self
            .nodes
            .get(name)?
            .resources
            .get(resource)?
            .devices
            .as_ref();
        devices.map(super::devices::Devices::free)
    }

    /// Whether a pod with this request can run on a node. An estimate never excludes a
    /// node.
    pub fn judge(&self, asks: &Asks, name: &str) -> Verdict {
        let Some(node) = self.nodes.get(name).filter(|node| node.is_listed()) else {
            return Verdict::Fits;
        };
        for ask in &asks.0 {
            let Some(devices) = &node.resources[ask.resource].devices else {
                continue;
            };
            let units = devices.layout().units_per_device;
            let resource = &self.config.resources[ask.resource].name;
            let one_device = devices.layout().one_device;
            if let Some(claim) = ask
                .claims
                .iter()
                .find(|claim| one_device && **claim > units)
            {
                return Verdict::Refused(format!(
                    "no device has {claim} units of {resource}, each has {units}"
                ));
            }
            let full = match devices.are_exact() {
                true => one_device && !devices.fit(&ask.claims),
                false => {
                    let in_use = || self.claims(node, ask.resource);
                    let mut claims = ask.claims.iter();
                    claims.any(|claim| devices.certainly_full(in_use(), *claim))
                }
            };
            if full {
                let wanted: Vec<String> = ask.claims.iter().map(u64::to_string).collect();
                let wanted = wanted.join(" + ");
                return Verdict::Refused(format!(
                    "no device has {wanted} free units of {resource}"
                ));
            }
        }
        Verdict::Fits
    }

    /// The score of a node for a pod with this request.
    pub fn score(&self, asks: &Asks, name: &str) -> u8 {
        let Some(node) = self.nodes.get(name).filter(|node| node.is_listed()) else {
            return 0;
        };
        let scores = asks.0.iter().map(|ask| {
            let config = &self.config.resources[ask.resource];
            (node.score(ask, config.score), config.weight)
        });
        weighted(scores)
    }

    /// Assumes that a pod was placed on a node, until it is seen on one.
    pub fn assume(&mut self, uid: &str, name: &str, asks: &Asks, now: Instant) {
        self.forget_assumption(uid);
        let known = self.nodes.get_key_value(name);
        let Some(name) = known.map(|(name, _)| Arc::clone(name)) else {
            return;
        };
        if self.pods.contains_key(uid) {
            return;
        }
        self.add_assumed(&name, asks);
        let dropped = self.assumptions.add(uid, name, asks.clone(), now);
        self.subtract_assumed(dropped);
    }

    /// Drops assumptions that were not confirmed in time.
    pub fn expire(&mut self, now: Instant) {
        let expired = self.assumptions.expire(now);
        self.subtract_assumed(expired);
    }

    /// Drops the assumption about a pod.
    pub fn forget_assumption(&mut self, uid: &str) {
        let ended = self.assumptions.remove(uid);
        self.subtract_assumed(ended);
    }

    fn add_assumed(&mut self, name: &str, asks: &Asks) {
        if let Some(node) = self.nodes.get_mut(name) {
            for ask in &asks.0 {
                let units = &mut node.resources[ask.resource].assumed;
                *units = units.saturating_add(ask.units);
            }
        }
    }

    fn subtract_assumed(&mut self, ended: impl IntoIterator<Item = (Arc<str>, Asks)>) {
        for (name, asks) in ended {
            if let Some(node) = self.nodes.get_mut(&name) {
                for ask in &asks.0 {
                    let units = &mut node.resources[ask.resource].assumed;
                    *units = units.saturating_sub(ask.units);
                }
            }
        }
    }

    /// The claims of a node's pods.
    fn claims<'a>(&'a self, node: &'a Node, resource: usize) -> impl Iterator<Item = &'a u64> {
        let pods = node.pods.iter().filter_map(|uid| self.pods.get(uid));
        pods.flat_map(move |pod| pod.claims(resource))
    }
}

impl Node {
    fn score(&self, ask: &Ask, by: ScoreBy) -> u8 {
        let resource = &self.resources[ask.resource];
        let in_use = resource.in_use.saturating_add(resource.assumed);
        let whole_node = score(ask.units, in_use, resource.allocatable);
        let Some(devices) = &resource.devices else {
            return whole_node;
        };
        if !devices.fit(&ask.claims) {
            return 0;
        }
        let device = match by {
            ScoreBy::Node => None,
            ScoreBy::Device => devices.use_of_best_device(&ask.claims),
        };
        let units = devices.layout().units_per_device;
        let full = device.map_or(whole_node, |in_use| score(0, in_use, units));
        full.saturating_sub(devices.crossings(&ask.claims))
    }
}

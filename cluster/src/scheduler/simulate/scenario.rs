//! The cluster and the pods that are simulated.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::scheduler::config::Layout;

/// Limits of a scenario: it runs in memory.
const MAX_NODES: usize = 20_000;
const MAX_PODS: usize = 1_000_000;
const MAX_SECONDS: f64 = 1e9;

/// A cluster and its pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The seed of the pods' random sizes and times.
    pub seed: u64,
    /// The number of pods.
    pub pods: usize,
    /// The mean time between two, in seconds.
    pub interval: f64,
    /// How long it takes until the extender has seen a change, in seconds.
    #[serde(default = "half")]
    pub view_delay: f64,
    /// How much earlier than the API server a kubelet knows that a pod has ended, in
    /// seconds.
    #[serde(default = "two")]
    pub end_delay: f64,
    /// How often the extender is started again, in seconds; 0: never.
    #[serde(default)]
    pub restart_interval: f64,
    #[serde(rename = "nodes")]
    pub node_groups: Vec<NodeGroup>,
    /// The kinds of pods.
    #[serde(rename = "kind")]
    pub kinds: Vec<PodKind>,
}

/// Nodes that are alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    pub count: usize,
    /// The devices of each.
    pub devices: u64,
    /// How its units are divided among them.
    pub layout: Layout,
}

/// Pods that are alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodKind {
    /// The share of this kind among the pods, relative to the other kinds.
    pub weight: usize,
    /// The units that their one container requests.
    pub units: u64,
    /// How long they run on average, in seconds.
    pub lifetime: f64,
}

fn half() -> f64 {
    0.5
}

fn two() -> f64 {
    2.0
}

impl Scenario {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads a text.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let scenario: Self = toml::from_str(text)?;
        let groups = &scenario.node_groups;
        let nodes = groups
            .iter()
            .fold(0_usize, |sum, group| sum.saturating_add(group.count));
        ensure!(
            (1..=MAX_NODES).contains(&nodes),
            "{nodes} nodes: not from 1 to {MAX_NODES}"
        );
        let pods = scenario.pods;
        ensure!(
            (1..=MAX_PODS).contains(&pods),
            "{pods} pods: not from 1 to {MAX_PODS}"
        );
        for group in groups {
            let Layout {
                units_per_device, ..
            } = group.layout;
            let fits =
                (1..=256).contains(&group.devices) && (1..=65_536).contains(&units_per_device);
            ensure!(
                fits,
                "nodes: devices from 1 to 256, units_per_device from 1 to 65536"
            );
            let rows = [
                group.layout.devices_per_numa_node,
                group.layout.devices_per_group,
            ];
            ensure!(!rows.contains(&Some(0)), "nodes: a row of 0 devices");
        }
        let weights = scenario
            .kinds
            .iter()
            .fold(0_usize, |sum, kind| sum.saturating_add(kind.weight));
        ensure!(
            (1..=1_000_000).contains(&weights),
            "kind: weights from 1 to 1000000 together"
        );
        for kind in &scenario.kinds {
            ensure!(
                (1..=1 << 20).contains(&kind.units),
                "kind: units from 1 to 1048576"
            );
        }
        let times = [
            scenario.interval,
            scenario.view_delay,
            scenario.end_delay,
            scenario.restart_interval,
        ];
        let lifetimes = scenario.kinds.iter().map(|kind| kind.lifetime);
        for time in times.into_iter().chain(lifetimes) {
            ensure!(
                (0.0..=MAX_SECONDS).contains(&time),
                "{time} s: not from 0 to {MAX_SECONDS}"
            );
        }
        Ok(scenario)
    }

    /// The largest request.
    pub fn largest(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.units).max().unwrap_or(0)
    }
}

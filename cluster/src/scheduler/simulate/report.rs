//! The results, as a table.

use std::fmt::Write;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::scenario::Scenario;
use super::strategy::Strategy;

/// The results of one strategy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    #[serde(serialize_with = "name")]
    pub strategy: Strategy,
    /// Pods that ran.
    pub placed: usize,
    /// How often a kubelet refused a pod.
    pub refused: usize,
    /// Pods without a node in the end.
    pub waiting: usize,
    /// The mean time until a pod had a node, in seconds.
    pub mean_wait: f64,
    /// Pods whose devices were of several groups or NUMA nodes although those of one
    /// would have been enough.
    pub crossed: usize,
    /// Free units of devices that have too few for the largest request, or of nodes
    /// where several devices may serve it, in percent of all units; the mean over time.
    pub stranded: f64,
    /// Units in use, in percent; the mean over time.
    pub in_use: f64,
    /// Devices whose free units the extender estimated wrongly, in percent; the mean over
    /// time. `None` without an extender.
    pub wrong: Option<f64>,
}

fn name<S: Serializer>(strategy: &Strategy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(strategy.name)
}

/// The sums from which an outcome is computed.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) refused: usize,
    pub(super) crossed: usize,
    pub(super) waiting: usize,
    placed: usize,
    wait: u64,
    samples: usize,
    stranded: f64,
    in_use: f64,
    wrong: f64,
}

impl Sums {
    pub(super) fn place(&mut self, waited: u64) {
        self.placed += 1;
        self.wait += waited;
    }

    pub(super) fn measure(
        &mut self,
        stranded: u64,
        free: u64,
        units: u64,
        wrong: usize,
        devices: usize,
    ) {
        self.samples += 1;
        self.stranded += percent(stranded as f64, units as f64);
        self.in_use += percent((units - free) as f64, units as f64);
        self.wrong += percent(wrong as f64, devices as f64);
    }

    pub(super) fn outcome(self, strategy: Strategy) -> Outcome {
        let samples = self.samples as f64;
        Outcome {
            strategy,
            placed: self.placed,
            refused: self.refused,
            crossed: self.crossed,
            waiting: self.waiting,
            mean_wait: self.wait as f64 / 1000.0 / (self.placed.max(1) as f64),
            stranded: self.stranded / samples,
            in_use: self.in_use / samples,
            wrong: strategy.extender.map(|_| self.wrong / samples),
        }
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    100.0 * part / whole.max(1.0)
}

/// The nodes and the devices of a scenario.
fn size(scenario: &Scenario) -> (usize, usize) {
    let groups = scenario.node_groups.iter();
    groups.fold((0, 0), |(nodes, devices), group| {
        let each = usize::try_from(group.devices).unwrap_or(0);
        (nodes + group.count, devices + group.count * each)
    })
}

/// What the table has, with the names of [`Outcome`].
pub(super) fn json(scenario: &Scenario, outcomes: &[Outcome]) -> Value {
    let (nodes, devices) = size(scenario);
    json!({
        "nodes": nodes,
        "devices": devices,
        "pods": scenario.pods,
        "seed": scenario.seed,
        "outcomes": outcomes,
    })
}

/// The table, and bars of the stranded units.
pub(super) fn table(scenario: &Scenario, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let (nodes, devices) = size(scenario);
    let pods = scenario.pods;
    let _ = writeln!(
        text,
        "{nodes} nodes, {devices} devices, {pods} pods, seed {}\n",
        scenario.seed
    );
    let _ = writeln!(
        text,
        "{:<18}{:>8}{:>9}{:>9}{:>9}{:>10}{:>9}{:>10}{:>9}",
        "", "placed", "refused", "crossed", "waiting", "wait, s", "in use", "stranded", "wrong"
    );
    for outcome in outcomes {
        let wrong = outcome
            .wrong
            .map_or("-".to_owned(), |wrong| format!("{wrong:.2} %"));
        let _ = writeln!(
            text,
            "{:<18}{:>8}{:>9}{:>9}{:>9}{:>10.1}{:>7.1} %{:>8.2} %{:>9}",
            outcome.strategy.name,
            outcome.placed,
            outcome.refused,
            outcome.crossed,
            outcome.waiting,
            outcome.mean_wait,
            outcome.in_use,
            outcome.stranded,
            wrong,
        );
    }
    let _ = writeln!(text, "\nstranded units, in percent of all");
    let most = outcomes
        .iter()
        .map(|outcome| outcome.stranded)
        .fold(0.01, f64::max);
    for outcome in outcomes {
        // At most 50.
        let length = (50.0 * outcome.stranded / most).round() as usize;
        let bar = "#".repeat(length);
        let _ = writeln!(
            text,
            "{:<18}{bar} {:.2}",
            outcome.strategy.name, outcome.stranded
        );
    }
    text
}

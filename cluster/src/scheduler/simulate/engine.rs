//! The simulation: events in order of time. The scheduler knows the sum of a node's
//! units, the kubelet and its plugin the devices, and the extender what its watches
//! report.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use serde_json::json;

use super::dice::Dice;
use super::report::{Outcome, Sums};
use super::scenario::Scenario;
use super::strategy::{Strategy, enough_nodes};
use crate::scheduler::config::{Config, Resource};
use crate::scheduler::devices::{Devices, Taken};
use crate::scheduler::objects;
use crate::scheduler::view::{Asks, PlacedPod, Verdict, View};

const RESOURCE: &str = "simulated.example/units";

/// How many pending pods are tried again when a pod has ended.
const RETRIES: usize = 64;

/// When a controller creates a new pod for one that the kubelet refused, in milliseconds.
const NEW_POD: u64 = 1000;

/// How many times the cluster is measured.
const SAMPLES: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Come(usize),
    TryAgain(usize),
    /// The extender sees a binding.
    Seen(usize),
    /// The kubelet frees the devices.
    End(usize),
    /// The API server has the pod's end.
    EndShown(usize),
    /// The extender sees it.
    EndSeen(usize),
    Restart,
}

struct Node {
    name: String,
    devices: Devices,
    capacity: u64,
    requested: u64,
}

struct Pod {
    asks: Asks,
    object: objects::Pod,
    units: u64,
    lifetime: f64,
    came: u64,
    node: Option<usize>,
    taken: Taken,
    is_shown: bool,
}

struct Engine<'a> {
    scenario: &'a Scenario,
    strategy: Strategy,
    config: Arc<Config>,
    view: View,
    node_objects: Vec<objects::Node>,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    events: BinaryHeap<Reverse<(u64, usize, Event)>>,
    sequence: usize,
    waiting: VecDeque<usize>,
    first_node: usize,
    dice: Dice,
    sums: Sums,
}

pub(super) fn simulate(scenario: &Scenario, strategy: Strategy) -> Outcome {
    let mut engine = Engine::new(scenario, strategy);
    let mut dice = Dice(scenario.seed);
    let mut time = 0;
    for number in 0..scenario.pods {
        time += dice.time(scenario.interval);
        engine.add_pod(number, &mut dice);
        engine.pods[number].came = time;
        engine.at(time, Event::Come(number));
    }
    let restart = milliseconds(scenario.restart_interval);
    if restart > 0 && strategy.extender.is_some() {
        let times = (1..).map(|number| number * restart);
        for restart in times.take_while(|restart| *restart < time).take(10_000) {
            engine.at(restart, Event::Restart);
        }
    }
    engine.run(time)
}

impl<'a> Engine<'a> {
    fn new(scenario: &'a Scenario, strategy: Strategy) -> Self {
        let groups = scenario.node_groups.iter();
        let layouts = groups.clone().enumerate().map(|(at, group)| {
            let mut layout = group.layout.clone();
            layout.labels = [("group".to_owned(), at.to_string())].into();
            layout
        });
        let config = Arc::new(Config {
            resources: vec![Resource {
                name: RESOURCE.to_owned(),
                weight: 1,
                score: strategy.extender.unwrap_or_default(),
                layouts: layouts.collect(),
            }],
        });
        let (mut nodes, mut node_objects) = (Vec::new(), Vec::new());
        for (group, at) in groups
            .enumerate()
            .flat_map(|(at, group)| (0..group.count).map(move |_| (group, at)))
        {
            let capacity = group.devices * group.layout.units_per_device;
            let layout = Arc::new(group.layout.clone());
            let Some(devices) = Devices::new(&layout, capacity) else {
                continue;
            };
            let name = format!("node-{}", nodes.len());
            let amounts = json!({RESOURCE: capacity.to_string()});
            let object = json!({
                "metadata": {"name": name, "labels": {"group": at.to_string()}},
                "status": {"capacity": amounts, "allocatable": amounts},
            });
            node_objects.extend(serde_json::from_value::<objects::Node>(object));
            nodes.push(Node {
                name,
                devices,
                capacity,
                requested: 0,
            });
        }
        let mut engine = Self {
            scenario,
            strategy,
            view: View::new(Arc::clone(&config)),
            config,
            node_objects,
            nodes,
            pods: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            waiting: VecDeque::new(),
            first_node: 0,
            dice: Dice(scenario.seed ^ 1),
            sums: Sums::default(),
        };
        engine.restart();
        engine
    }

    fn add_pod(&mut self, number: usize, dice: &mut Dice) {
        let kinds = &self.scenario.kinds;
        let mut drawn = dice.below(kinds.iter().map(|kind| kind.weight).sum());
        let kind = kinds.iter().find(|kind| {
            let found = drawn < kind.weight;
            drawn = drawn.saturating_sub(kind.weight);
            found
        });
        let Some(kind) = kind else { return };
        let lifetime = dice.time(kind.lifetime) as f64 / 1000.0;
        let object = json!({
            "metadata": {"uid": format!("pod-{number}")},
            "spec": {"containers": [{"resources": {"requests": {RESOURCE: kind.units.to_string()}}}]},
        });
        let object: objects::Pod = serde_json::from_value(object).unwrap_or_default();
        self.pods.push(Pod {
            asks: Asks::of(&object, &self.config).unwrap_or_default(),
            object,
            units: kind.units,
            lifetime,
            came: 0,
            node: None,
            taken: Taken::default(),
            is_shown: false,
        });
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    /// At a later time, or at once if it is not later.
    fn after(&mut self, now: u64, time: u64, event: Event) {
        match time > now {
            true => self.at(time, event),
            false => self.happen(now, event),
        }
    }

    /// Until the last pod has arrived: afterwards the cluster only empties.
    fn run(mut self, end: u64) -> Outcome {
        let step = (end / SAMPLES as u64).max(1);
        let mut sample = step;
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            if time > end {
                break;
            }
            while sample < time {
                self.measure();
                sample += step;
            }
            self.happen(time, event);
        }
        self.measure();
        self.sums.waiting = self.waiting.len();
        self.sums.outcome(self.strategy)
    }

    fn happen(&mut self, time: u64, event: Event) {
        let view_delay = milliseconds(self.scenario.view_delay);
        match event {
            Event::Come(pod) | Event::TryAgain(pod) => {
                if !self.schedule(time, pod) {
                    self.waiting.push_back(pod);
                }
            }
            Event::Seen(pod) => {
                self.pods[pod].is_shown = true;
                self.view.apply_pod(&self.pods[pod].object);
            }
            Event::End(pod) => {
                if let Some(node) = self.pods[pod].node {
                    self.nodes[node].devices.release(&self.pods[pod].taken);
                }
                let shown = time + milliseconds(self.scenario.end_delay);
                // Events of the same time are all seen before the next decision.
                self.after(time, shown + view_delay, Event::EndSeen(pod));
                self.after(time, shown, Event::EndShown(pod));
            }
            Event::EndShown(pod) => {
                if let Some(node) = self.pods[pod].node {
                    self.nodes[node].requested -= self.pods[pod].units;
                }
                self.try_waiting(time);
            }
            Event::EndSeen(pod) => {
                self.pods[pod].is_shown = false;
                let uid = self.pods[pod].object.metadata.uid.clone();
                self.view.remove_pod(&uid.unwrap_or_default());
            }
            Event::Restart => self.restart(),
        }
    }

    /// Tries the pods that have waited longest. If a pod finds no node, larger ones are
    /// skipped.
    fn try_waiting(&mut self, time: u64) {
        let mut too_large = u64::MAX;
        for _ in 0..self.waiting.len().min(RETRIES) {
            let Some(pod) = self.waiting.pop_front() else {
                return;
            };
            let units = self.pods[pod].units;
            if units >= too_large || !self.schedule(time, pod) {
                too_large = too_large.min(units);
                self.waiting.push_back(pod);
            }
        }
    }

    /// The extender lists everything: it learns in which order the pods came, but not
    /// which pods had ended before.
    fn restart(&mut self) {
        self.view = View::new(Arc::clone(&self.config));
        self.view.replace_nodes(&self.node_objects);
        let shown = self.pods.iter().filter(|pod| pod.is_shown);
        let placed = shown.filter_map(|pod| PlacedPod::of(&pod.object, &self.config));
        let placed = placed.collect();
        self.view.replace_pods(placed);
    }

    /// Whether a pod gets a node. The kubelet may still refuse it.
    fn schedule(&mut self, time: u64, pod: usize) -> bool {
        let Some(chosen) = self.choose(pod) else {
            return false;
        };
        let (node, claims) = (&mut self.nodes[chosen], [self.pods[pod].units]);
        if !node.devices.fit(&claims) {
            // UnexpectedAdmissionError: the controller makes another pod.
            self.sums.refused += 1;
            self.at(time + NEW_POD, Event::TryAgain(pod));
            return true;
        }
        self.sums.crossed += usize::from(node.devices.crossings(&claims) > 0);
        let taken = node.devices.take(&claims);
        node.requested += self.pods[pod].units;
        let name = node.name.clone();
        let placed = &mut self.pods[pod];
        (placed.node, placed.taken) = (Some(chosen), taken);
        placed.object.spec.node_name = Some(name);
        // Pods start in the order of their numbers as far as a list shows.
        placed.object.metadata.creation_timestamp = started(time);
        let lifetime = milliseconds(placed.lifetime);
        self.sums.place(time - placed.came);
        self.at(time + lifetime.max(1), Event::End(pod));
        let seen = time + milliseconds(self.scenario.view_delay);
        self.after(time, seen, Event::Seen(pod));
        true
    }

    /// The node that the scheduler chooses, of those that it finds first.
    fn choose(&mut self, pod: usize) -> Option<usize> {
        let (asks, units) = (&self.pods[pod].asks, self.pods[pod].units);
        let (count, enough) = (self.nodes.len(), enough_nodes(self.nodes.len()));
        let (mut found, mut seen) = (Vec::with_capacity(enough), 0);
        for at in (0..count).map(|step| (self.first_node + step) % count) {
            seen += 1;
            let node = &self.nodes[at];
            if node.requested + units <= node.capacity {
                found.push(at);
            }
            if found.len() == enough {
                break;
            }
        }
        self.first_node = (self.first_node + seen) % count;
        if self.strategy.extender.is_some() {
            found.retain(|at| self.view.judge(asks, &self.nodes[*at].name) == Verdict::Fits);
        }
        let score = |at: &usize| {
            let node = &self.nodes[*at];
            let in_tree = match self.strategy.most_allocated {
                true => 100 * (node.requested + units) / node.capacity,
                false => 0,
            };
            let extender = self
                .strategy
                .extender
                .map_or(0, |_| u64::from(self.view.score(asks, &node.name)));
            // With the weight of the example configuration, 10.
            in_tree + 100 * extender
        };
        let scores: Vec<u64> = found.iter().map(score).collect();
        let best = scores.iter().max()?;
        let best: Vec<usize> = found
            .iter()
            .zip(&scores)
            .filter(|(_, score)| *score == best)
            .map(|(at, _)| *at)
            .collect();
        Some(best[self.dice.below(best.len())])
    }

    fn measure(&mut self) {
        let largest = self.scenario.largest();
        let (mut stranded, mut free, mut units, mut wrong, mut devices) = (0, 0, 0, 0, 0);
        for node in &self.nodes {
            let truth = node.devices.free();
            let layout = node.devices.layout();
            units += node.capacity;
            devices += truth.len();
            // What must serve a request: one device, or the whole node.
            let (row, whole) = match layout.one_device {
                true => (1, layout.units_per_device),
                false => (truth.len(), node.capacity),
            };
            for part in truth.chunks(row) {
                let left: u64 = part.iter().map(|left| u64::from(*left)).sum();
                free += left;
                stranded += if left < largest.min(whole) { left } else { 0 };
            }
            if self.strategy.extender.is_some()
                && let Some(guess) = self.view.free_units(&node.name, 0)
            {
                wrong += differing(truth, guess);
            }
        }
        self.sums.measure(stranded, free, units, wrong, devices);
    }
}

/// How many devices have another number of free units. Devices are compared as a set:
/// which of two equal devices a pod got makes no difference to other pods.
fn differing(truth: &[u32], guess: &[u32]) -> usize {
    let (mut truth, mut guess) = (truth.to_vec(), guess.to_vec());
    truth.sort_unstable();
    guess.sort_unstable();
    truth.iter().zip(&guess).filter(|(a, b)| a != b).count()
}

fn milliseconds(seconds: f64) -> u64 {
    // A saturating conversion: the scenario bounds the seconds.
    (seconds * 1000.0) as u64
}

fn started(time: u64) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
    let time = i64::try_from(time).ok()?;
    let time = k8s_openapi::jiff::Timestamp::from_millisecond(time).ok()?;
    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time))
}

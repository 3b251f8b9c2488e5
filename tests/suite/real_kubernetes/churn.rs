//! Pods come and go for ten minutes, while the plugin, the kubelet, the engine and the shims of
//! containers are killed and the plugin is updated, in an order that a seed decides.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::ClusterCase;
use super::changes::{install, restart_plugin};
use super::daemons::Daemon;
use super::node::Node;
use super::overlay::Overlay;
use super::pod::Pod;

pub(super) const CASES: &[ClusterCase] = &[("ten minutes of churn", churn)];

const LENGTH: Duration = Duration::from_secs(600);

/// The number of seconds to use in place of it.
const SECONDS: &str = "BOATHOOK_CHURN_SECONDS";

/// The time between two events. Without it a kubelet would be killed before it has started a pod.
const PERIOD: Duration = Duration::from_millis(400);

/// The seed to use, to repeat an order of events.
const SEED: &str = "BOATHOOK_CHURN_SEED";

/// A sequence of numbers that a seed decides (xorshift64).
struct Sequence(u64);

impl Sequence {
    fn start() -> Result<Self> {
        let seed = match std::env::var(SEED) {
            Ok(seed) => seed.parse().with_context(|| format!("{SEED}={seed}"))?,
            Err(_) => RandomState::new().hash_one(SEED),
        };
        println!("{SEED}={seed}");
        // From 0 the sequence would not go on.
        Ok(Sequence(seed.max(1)))
    }

    fn next_below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap_or(0)
    }
}

fn churn(node: &Node) -> Result<()> {
    install(node, &[])?;
    let mut sequence = Sequence::start()?;
    // The pods by name, with the number of devices that they request.
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    let (mut arrived, mut checked, mut killed_shims) = (0, 0, 0);
    let mut refused = BTreeSet::new();
    let length = match std::env::var(SECONDS) {
        Ok(seconds) => Duration::from_secs(seconds.parse().context(SECONDS)?),
        Err(_) => LENGTH,
    };
    let start = Instant::now();
    while start.elapsed() < length {
        let event = Instant::now();
        match sequence.next_below(1000) {
            0..550 if pods.values().sum::<usize>() < 60 => {
                let devices = 1 + sequence.next_below(4);
                let name = format!("churn-{arrived}");
                node.apply(&Pod::new(Overlay::Cdi, &name, devices).that_stays().text())?;
                pods.insert(name, devices);
                arrived += 1;
            }
            0..870 => {
                let position = sequence.next_below(pods.len().max(1));
                if let Some(name) = pods.keys().nth(position).cloned() {
                    note_refused(node, &name, &mut refused)?;
                    node.kubectl(&["delete", "pod", "--now", "--wait=false", &name])?;
                    pods.remove(&name);
                }
            }
            870..880 => {
                // The plugin may have ended a moment ago.
                let _ = node.signal("boathook-plugin", "KILL");
            }
            // kubectl refuses a second restart within a second.
            880..885 => node.until("the plugin is updated", || {
                restart_plugin(node).map(|()| true)
            })?,
            885..895 => node.restart(Daemon::Kubelet, "KILL")?,
            895..900 => node.restart(node.engine.daemon(), "KILL")?,
            900..910 => {
                // The engine ends the container of a shim that was killed, be it the plugin's.
                // After other kills there may be none for a moment.
                let shims = node
                    .processes(node.engine.shim_program())
                    .unwrap_or_default();
                let position = sequence.next_below(shims.len().max(1));
                if let Some(shim) = shims.get(position) {
                    // It may have ended a moment ago.
                    let _ = node.shell(&format!("kill -KILL {shim}"));
                    killed_shims += 1;
                }
            }
            _ => checked += check(node, &pods)?,
        }
        sleep(PERIOD.saturating_sub(event.elapsed()));
    }
    node.rolled_out()?;
    node.until_devices()?;
    checked += check(node, &pods)?;
    for name in pods.keys() {
        note_refused(node, name, &mut refused)?;
    }
    println!(
        "{arrived} pods arrived, {checked} were checked, {} were refused by the kubelet; \
         {killed_shims} shims were killed",
        refused.len()
    );
    ensure!(checked > 0, "no pod was checked");
    let names: Vec<&str> = pods.keys().map(String::as_str).collect();
    if !names.is_empty() {
        node.delete_pods(&names)?;
    }
    Pod::new(Overlay::Cdi, "after-the-churn", 64)
        .run(node)?
        .number(64)
}

/// Adds a pod to `refused` if the kubelet has refused it because it had no healthy device for it.
fn note_refused(node: &Node, name: &str, refused: &mut BTreeSet<String>) -> Result<()> {
    let reason = node.kubectl(&["get", "pod", name, "-o", "jsonpath={.status.reason}"])?;
    if reason == "UnexpectedAdmissionError" {
        refused.insert(name.to_owned());
    }
    Ok(())
}

/// Checks that each pod that runs has as many devices as it requested, none of another's, and those
/// that the kubelet has recorded for it. Returns the number of these pods.
fn check(node: &Node, pods: &BTreeMap<String, usize>) -> Result<usize> {
    let mut given = BTreeSet::new();
    let mut checked = 0;
    let record = read_record(node)?;
    for (name, devices) in pods {
        if node.phase(name)? != "Running" {
            continue;
        }
        // A pod that started a moment ago has not reported yet.
        let Ok(reported) = node.devices_of(name, "main") else {
            continue;
        };
        reported.number(*devices).with_context(|| name.clone())?;
        compare_with_record(node, name, &reported.opened, &record)?;
        for device in reported.opened {
            ensure!(
                given.insert(device),
                "{name} has npu-{device}, as another pod has"
            );
        }
        checked += 1;
    }
    Ok(checked)
}

/// The kubelet's record: the devices of each pod, by the pod's uid.
type Record = BTreeMap<String, BTreeSet<usize>>;

fn read_record(node: &Node) -> Result<Record> {
    let path = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
    let checkpoint: Value = serde_json::from_str(&node.shell(&format!("cat {path}"))?)?;
    let mut record = Record::new();
    let entries = checkpoint["Data"]["PodDeviceEntries"].as_array();
    for entry in entries.into_iter().flatten() {
        let pod = entry["PodUID"].as_str().context("an entry has a pod")?;
        let ids = entry["DeviceIDs"].as_object().into_iter().flatten();
        let ids = ids.filter_map(|(_, ids)| ids.as_array()).flatten();
        let numbers = ids.filter_map(|id| id.as_str()?.strip_prefix("npu-")?.parse::<usize>().ok());
        record.entry(pod.to_owned()).or_default().extend(numbers);
    }
    Ok(record)
}

/// Checks that a pod has the devices that the kubelet has recorded for it. The kubelet removes a pod
/// from its record when it considers it as ended, which may be before its containers have ended. So
/// one that is not in the record must not go on running.
fn compare_with_record(
    node: &Node,
    name: &str,
    opened: &BTreeSet<usize>,
    record: &Record,
) -> Result<()> {
    let uid = node.kubectl(&["get", "pod", name, "-o", "jsonpath={.metadata.uid}"])?;
    if let Some(recorded) = record.get(&uid) {
        ensure!(
            recorded == opened,
            "{name} has {opened:?}, and the kubelet has recorded {recorded:?}"
        );
        return Ok(());
    }
    println!("{name} ({uid}) has {opened:?}, and the kubelet's record lacks it");
    node.until("it is recorded, or has ended", || {
        Ok(read_record(node)?.contains_key(&uid) || node.phase(name)? != "Running")
    })
}

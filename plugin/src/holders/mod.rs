//! Detects that the kubelet allocated a device although another pod still runs with it. The
//! kubelet checkpoint says which pod has which device; this process remembers it.
//!
//! The kubelet makes this error after it has lost its checkpoint, for example because somebody
//! removed the file while the kubelet was restarting. Then neither the checkpoint nor the
//! PodResources API knows the running pod, and only the memory of this process and the pod's
//! cgroup are left. They do not prove that the pod still uses the device: only one of its
//! containers had it, and others may run longer. Therefore the allocation is not refused, but
//! reported and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use device_class::name::{ResourceName, excerpt};
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::pod_cgroups::PodCgroups;

/// The delay after an allocation before a conflict is confirmed. By then the processes of an ended
/// pod are gone, and the kubelet has written its checkpoint.
const CONFIRM_DELAY: Duration = Duration::from_secs(10);

/// The delay after an allocation until the kubelet has written its checkpoint.
const CHECKPOINT_DELAY: Duration = Duration::from_secs(1);

/// The interval at which the checkpoint is read without an allocation.
const READ_INTERVAL: Duration = Duration::from_secs(30);

/// The maximum number of unchecked allocations. Further ones are not checked.
const MAX_QUEUED: usize = 1024;

/// The maximum number of devices whose holders are remembered.
const MAX_DEVICES: usize = 1 << 16;

/// A resource name and the id of one of its devices or shares.
type DeviceKey = (String, String);

/// A container to which a device was allocated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    pod_uid: String,
    container: String,
}

type Holders = BTreeMap<DeviceKey, BTreeSet<Holder>>;

/// The allocation of a device whose earlier holder the checkpoint no longer knows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SuspectedConflict {
    device: DeviceKey,
    holder: Holder,
    since: Instant,
}

/// Reports allocations to the [`HolderWatch`]. All clones use the same queue.
#[derive(Debug, Clone)]
pub(crate) struct AllocationReports(mpsc::Sender<Vec<DeviceKey>>);

impl AllocationReports {
    pub(crate) fn report(&self, resource: &ResourceName, ids: &[String]) {
        let devices = ids.iter().map(|id| (resource.to_string(), id.clone()));
        // If the queue is full, this allocation is not checked.
        let _ = self.0.try_send(devices.collect());
    }
}

/// The task that checks allocations for conflicts.
#[derive(Debug)]
pub(crate) struct HolderWatch {
    memory: HolderMemory,
    allocations: mpsc::Receiver<Vec<DeviceKey>>,
    metrics: Metrics,
}

#[derive(Debug)]
struct HolderMemory {
    checkpoint: PathBuf,
    cgroups: PodCgroups,
    holders: Holders,
    suspected_conflicts: Vec<SuspectedConflict>,
}

impl HolderWatch {
    /// Takes the path of the kubelet checkpoint and the host's root directory.
    pub(crate) fn new(
        checkpoint: PathBuf,
        root: &Path,
        metrics: Metrics,
    ) -> (Self, AllocationReports) {
        let (reports, allocations) = mpsc::channel(MAX_QUEUED);
        let memory = HolderMemory::new(checkpoint, root);
        let watch = HolderWatch {
            memory,
            allocations,
            metrics,
        };
        (watch, AllocationReports(reports))
    }

    /// Checks allocations for ever. Files are read on a separate thread.
    pub(crate) async fn run(self) {
        let HolderWatch {
            mut memory,
            mut allocations,
            metrics,
        } = self;
        let mut period = READ_INTERVAL;
        loop {
            let next = match memory.suspected_conflicts.first() {
                Some(oldest) => period.min(CONFIRM_DELAY.saturating_sub(oldest.since.elapsed())),
                None => period,
            };
            let devices = tokio::select! {
                Some(devices) = allocations.recv() => devices,
                () = tokio::time::sleep(next) => Vec::new(),
            };
            period = if devices.is_empty() {
                READ_INTERVAL
            } else {
                CHECKPOINT_DELAY
            };
            let known = memory.holders.len();
            let checked = tokio::task::spawn_blocking(move || {
                let conflicts = memory.check(&devices, Instant::now());
                (memory, conflicts)
            });
            let Ok((same, conflicts)) = checked.await else {
                return;
            };
            memory = same;
            let count = memory.holders.len();
            if count != known {
                tracing::debug!("the pods with {count} devices are known");
            }
            for ((resource, device), holder) in conflicts {
                metrics.count_allocation_conflict(&resource);
                tracing::error!(
                    %resource,
                    device = %excerpt(&device),
                    "allocated by the kubelet, although pod {} runs, whose container {} was given it: \
                     the kubelet has lost its record of that pod, and both may use the device; \
                     delete one of the two pods",
                    excerpt(&holder.pod_uid),
                    excerpt(&holder.container),
                );
            }
        }
    }
}

impl HolderMemory {
    fn new(checkpoint: PathBuf, root: &Path) -> Self {
        HolderMemory {
            checkpoint,
            cgroups: PodCgroups::new(root),
            holders: Holders::new(),
            suspected_conflicts: Vec::new(),
        }
    }

    /// Checks newly allocated devices, and returns the conflicts that are confirmed now.
    fn check(&mut self, allocated: &[DeviceKey], now: Instant) -> Vec<(DeviceKey, Holder)> {
        let recorded = match KubeletCheckpoint::read(&self.checkpoint) {
            Ok(checkpoint) => read_holders(&checkpoint),
            Err(error) if error.is_absent() => Holders::new(),
            // The kubelet may be writing the file. The next reading decides.
            Err(_) => return Vec::new(),
        };
        let is_recorded = |device: &DeviceKey, holder: &Holder| {
            let holders = recorded.get(device);
            holders.is_some_and(|holders| holders.contains(holder))
        };
        for device in allocated {
            let earlier = self.holders.get(device).into_iter().flatten();
            let lost = earlier.filter(|holder| !is_recorded(device, holder));
            self.suspected_conflicts
                .extend(lost.map(|holder| SuspectedConflict {
                    device: device.clone(),
                    holder: holder.clone(),
                    since: now,
                }));
        }
        let (due, waiting) = std::mem::take(&mut self.suspected_conflicts)
            .into_iter()
            .partition(|one| now.saturating_duration_since(one.since) >= CONFIRM_DELAY);
        self.suspected_conflicts = waiting;
        let due: Vec<SuspectedConflict> = due;
        let conflicts = due.into_iter().filter(|one| {
            // The kubelet may have allocated the device to a new container of the same pod.
            let has_it = recorded.get(&one.device).is_some_and(|holders| {
                let mut pods = holders.iter().map(|holder| &holder.pod_uid);
                pods.any(|pod| *pod == one.holder.pod_uid)
            });
            !has_it && self.cgroups.has_running_container(&one.holder.pod_uid)
        });
        let conflicts = conflicts.map(|one| (one.device, one.holder)).collect();
        self.update_holders(recorded);
        conflicts
    }

    /// Adds the holders of the checkpoint, and forgets the others once their pods have ended.
    fn update_holders(&mut self, recorded: Holders) {
        let mut is_running: BTreeMap<String, bool> = BTreeMap::new();
        let cgroups = &self.cgroups;
        self.holders.retain(|device, holders| {
            holders.retain(|holder| {
                let known = recorded.get(device);
                known.is_some_and(|known| known.contains(holder))
                    || *is_running
                        .entry(holder.pod_uid.clone())
                        .or_insert_with_key(|pod| cgroups.has_running_container(pod))
            });
            !holders.is_empty()
        });
        for (device, holders) in recorded {
            if self.holders.len() < MAX_DEVICES || self.holders.contains_key(&device) {
                self.holders.entry(device).or_default().extend(holders);
            }
        }
    }
}

fn read_holders(checkpoint: &KubeletCheckpoint) -> Holders {
    let mut holders = Holders::new();
    for allocation in checkpoint.allocations() {
        for device in allocation.devices {
            let key = (allocation.resource.to_owned(), device.to_owned());
            let holder = Holder {
                pod_uid: allocation.pod_uid.to_owned(),
                container: allocation.container.to_owned(),
            };
            holders.entry(key).or_default().insert(holder);
        }
    }
    holders
}

#[cfg(test)]
mod tests;

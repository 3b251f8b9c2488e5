//! Remembers which pods have which devices, by the kubelet checkpoint, and notices when the
//! kubelet gives a device to a container although another pod still runs with it.
//!
//! The kubelet does so after its checkpoint was lost, for example because somebody removed it
//! while the kubelet was restarted. Neither the checkpoint nor the pod resources API has the
//! running pod then. What is left is the memory of this process, and the pod's cgroup. They are
//! no proof that the pod still uses the device: only one of its containers had it, and others
//! may run longer. Therefore the allocation is not refused. It is reported and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use device_class::name::{ResourceName, excerpt};
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::pod_cgroups::PodCgroups;

/// The time after an allocation at which its conflicts are confirmed. The processes of a pod that
/// has ended are gone by then, and the kubelet has written its checkpoint.
const CONFIRM: Duration = Duration::from_secs(10);

/// The time after an allocation at which the kubelet has written its checkpoint.
const RECORDED: Duration = Duration::from_secs(1);

/// The time between two readings of the checkpoint.
const REFRESH: Duration = Duration::from_secs(30);

/// The maximum number of allocations that wait to be checked. Further ones are not checked.
const QUEUE: usize = 1024;

/// The maximum number of remembered devices.
const MAX_DEVICES: usize = 1 << 16;

/// An id of a device, or of a share of one, of a resource.
type DeviceKey = (String, String);

/// A container that had a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    pod_uid: String,
    container: String,
}

type Holders = BTreeMap<DeviceKey, BTreeSet<Holder>>;

/// A device that was allocated while an earlier holder was not in the checkpoint any more.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Suspicion {
    device: DeviceKey,
    holder: Holder,
    since: Instant,
}

/// Tells the memory of holders about allocations. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct AllocationReports(mpsc::Sender<Vec<DeviceKey>>);

impl AllocationReports {
    pub(crate) fn report(&self, resource: &ResourceName, ids: &[String]) {
        let devices = ids.iter().map(|id| (resource.to_string(), id.clone()));
        // If the queue is full, the allocation is not checked.
        let _ = self.0.try_send(devices.collect());
    }
}

/// The memory of holders.
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
    suspicions: Vec<Suspicion>,
}

impl HolderWatch {
    /// Creates the memory for the kubelet with this checkpoint, on the host below `root`.
    pub(crate) fn new(
        checkpoint: PathBuf,
        root: &Path,
        metrics: Metrics,
    ) -> (Self, AllocationReports) {
        let (reports, allocations) = mpsc::channel(QUEUE);
        let memory = HolderMemory::new(checkpoint, root);
        let watch = HolderWatch {
            memory,
            allocations,
            metrics,
        };
        (watch, AllocationReports(reports))
    }

    /// Checks allocations for ever. The files are read on another thread.
    pub(crate) async fn run(self) {
        let HolderWatch {
            mut memory,
            mut allocations,
            metrics,
        } = self;
        let mut period = REFRESH;
        loop {
            let next = match memory.suspicions.first() {
                Some(oldest) => period.min(CONFIRM.saturating_sub(oldest.since.elapsed())),
                None => period,
            };
            let devices = tokio::select! {
                Some(devices) = allocations.recv() => devices,
                () = tokio::time::sleep(next) => Vec::new(),
            };
            period = if devices.is_empty() {
                REFRESH
            } else {
                RECORDED
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
                metrics.allocation_conflict(&resource);
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
            suspicions: Vec::new(),
        }
    }

    /// Takes note of allocated devices, and returns the conflicts that are confirmed now.
    fn check(&mut self, allocated: &[DeviceKey], now: Instant) -> Vec<(DeviceKey, Holder)> {
        let recorded = match KubeletCheckpoint::read(&self.checkpoint) {
            Ok(checkpoint) => read_holders(&checkpoint),
            Err(error) if error.is_absent() => Holders::new(),
            // Nothing is known now. The kubelet may write the file again.
            Err(_) => return Vec::new(),
        };
        let is_recorded = |device: &DeviceKey, holder: &Holder| {
            let holders = recorded.get(device);
            holders.is_some_and(|holders| holders.contains(holder))
        };
        for device in allocated {
            let earlier = self.holders.get(device).into_iter().flatten();
            let lost = earlier.filter(|holder| !is_recorded(device, holder));
            self.suspicions.extend(lost.map(|holder| Suspicion {
                device: device.clone(),
                holder: holder.clone(),
                since: now,
            }));
        }
        let (due, waiting) = std::mem::take(&mut self.suspicions)
            .into_iter()
            .partition(|one| now.saturating_duration_since(one.since) >= CONFIRM);
        self.suspicions = waiting;
        let due: Vec<Suspicion> = due;
        let conflicts = due.into_iter().filter(|one| {
            // The kubelet may have given the device to the same pod again, to a new container.
            let has_it = recorded.get(&one.device).is_some_and(|holders| {
                let mut pods = holders.iter().map(|holder| &holder.pod_uid);
                pods.any(|pod| *pod == one.holder.pod_uid)
            });
            !has_it && self.cgroups.has_running_container(&one.holder.pod_uid)
        });
        let conflicts = conflicts.map(|one| (one.device, one.holder)).collect();
        self.refresh(recorded);
        conflicts
    }

    /// Remembers the recorded holders, and forgets the others whose pods have ended.
    fn refresh(&mut self, recorded: Holders) {
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

//! Detects that the kubelet has allocated a device that another running pod still has. For this,
//! the process remembers which pods had which devices in the kubelet checkpoint. It also stores
//! them in a file, which it reads at its next start.
//!
//! The kubelet makes this error after it has lost its checkpoint, for example because somebody
//! removed the file while the kubelet was restarting. Then neither the checkpoint nor the
//! PodResources API lists the running pod. The only evidence is the memory of this process and the
//! pod's cgroup. This evidence does not prove that the pod still uses the device: the container
//! that had the device may have ended while other containers of the pod run. Therefore the
//! allocation is not refused, but only reported and counted.

mod saved_holders;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use device_class::name::{ResourceName, excerpt};
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::pod_cgroups::PodCgroups;
use saved_holders::HolderFile;

/// The delay between an allocation and the confirmation of a conflict. Within this time the
/// processes of an ended pod exit, and the kubelet writes its checkpoint.
const CONFIRMATION_DELAY: Duration = Duration::from_secs(10);

/// The delay between an allocation and the next reading of the checkpoint. Within this time the
/// kubelet writes the file.
const CHECKPOINT_WRITE_DELAY: Duration = Duration::from_secs(1);

/// The interval at which the kubelet checkpoint is read while nothing is allocated.
const CHECKPOINT_READ_INTERVAL: Duration = Duration::from_secs(30);

/// The maximum number of allocations that wait for the check. Further allocations are not checked.
const MAX_QUEUED_ALLOCATIONS: usize = 1024;

/// The maximum number of devices whose holders are kept in memory. Conflicts over further devices
/// are not detected.
const MAX_REMEMBERED_DEVICES: usize = 1 << 16;

/// A resource name and the id of one of its devices or shares, such as `example.com/npu` and
/// `npu-0`.
type DeviceKey = (String, String);

/// A container to which a device was allocated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    pod_uid: String,
    container: String,
}

type Holders = BTreeMap<DeviceKey, BTreeSet<Holder>>;

/// The allocation of a device that an earlier holder may still use. The kubelet checkpoint no
/// longer lists this holder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SuspectedConflict {
    device: DeviceKey,
    holder: Holder,
    allocation_time: Instant,
}

/// Sends allocations to the [`AllocationChecker`]. All clones use one queue.
#[derive(Debug, Clone)]
pub(crate) struct AllocationReporter(mpsc::Sender<Vec<DeviceKey>>);

impl AllocationReporter {
    pub(crate) fn report_allocation(&self, resource: &ResourceName, ids: &[String]) {
        let devices = ids.iter().map(|id| (resource.to_string(), id.clone()));
        // An error is ignored: an allocation that does not fit into the queue is not checked.
        let _ = self.0.try_send(devices.collect());
    }
}

/// The task that detects allocations of devices which another running pod still has.
#[derive(Debug)]
pub(crate) struct AllocationChecker {
    history: HolderHistory,
    allocations: mpsc::Receiver<Vec<DeviceKey>>,
    metrics: Metrics,
}

#[derive(Debug)]
struct HolderHistory {
    checkpoint_path: PathBuf,
    cgroups: PodCgroups,
    holders: Holders,
    holder_file: HolderFile,
    /// Whether the last attempt to write the file failed. Only the first failure is reported.
    has_write_failed: bool,
    suspected_conflicts: Vec<SuspectedConflict>,
}

impl AllocationChecker {
    /// Creates the task, and the reporter that sends allocations to it. `checkpoint_path` is the
    /// path of the kubelet checkpoint, and `host_root` is the host's root directory.
    pub(crate) fn new(
        checkpoint_path: PathBuf,
        host_root: &Path,
        metrics: Metrics,
    ) -> (Self, AllocationReporter) {
        let (sender, allocations) = mpsc::channel(MAX_QUEUED_ALLOCATIONS);
        let history = HolderHistory::new(checkpoint_path, host_root);
        let checker = AllocationChecker {
            history,
            allocations,
            metrics,
        };
        (checker, AllocationReporter(sender))
    }

    /// Checks allocations until it is cancelled. A separate thread reads the files, because reading
    /// may block.
    pub(crate) async fn run(self) {
        let AllocationChecker {
            mut history,
            mut allocations,
            metrics,
        } = self;
        let mut max_wait = CHECKPOINT_READ_INTERVAL;
        loop {
            let timeout = match history.suspected_conflicts.first() {
                Some(oldest) => max_wait
                    .min(CONFIRMATION_DELAY.saturating_sub(oldest.allocation_time.elapsed())),
                None => max_wait,
            };
            let devices = tokio::select! {
                Some(devices) = allocations.recv() => devices,
                () = tokio::time::sleep(timeout) => Vec::new(),
            };
            max_wait = if devices.is_empty() {
                CHECKPOINT_READ_INTERVAL
            } else {
                CHECKPOINT_WRITE_DELAY
            };
            let previous_count = history.holders.len();
            let check_task = tokio::task::spawn_blocking(move || {
                let conflicts = history.check_allocations(&devices, Instant::now());
                (history, conflicts)
            });
            let Ok((updated_history, conflicts)) = check_task.await else {
                return;
            };
            history = updated_history;
            let count = history.holders.len();
            if count != previous_count {
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

impl HolderHistory {
    fn new(checkpoint_path: PathBuf, host_root: &Path) -> Self {
        let holder_file = HolderFile::new(host_root);
        HolderHistory {
            checkpoint_path,
            cgroups: PodCgroups::new(host_root),
            holders: holder_file.read(),
            holder_file,
            has_write_failed: false,
            suspected_conflicts: Vec::new(),
        }
    }

    /// Records a suspected conflict for each newly allocated device that an earlier holder may
    /// still use. Returns the conflicts that are confirmed now: those that were recorded at least
    /// [`CONFIRMATION_DELAY`] ago, and whose earlier holder still runs.
    fn check_allocations(
        &mut self,
        allocated_devices: &[DeviceKey],
        now: Instant,
    ) -> Vec<(DeviceKey, Holder)> {
        let current_holders = match KubeletCheckpoint::read(&self.checkpoint_path) {
            Ok(checkpoint) => read_holders(&checkpoint),
            Err(error) if error.is_absent() => Holders::new(),
            // The kubelet may be writing the checkpoint at this moment. The next check reads it
            // again.
            Err(_) => return Vec::new(),
        };
        let is_recorded = |device: &DeviceKey, holder: &Holder| {
            let holders = current_holders.get(device);
            holders.is_some_and(|holders| holders.contains(holder))
        };
        for device in allocated_devices {
            let earlier_holders = self.holders.get(device).into_iter().flatten();
            let missing_holders = earlier_holders.filter(|holder| !is_recorded(device, holder));
            self.suspected_conflicts
                .extend(missing_holders.map(|holder| SuspectedConflict {
                    device: device.clone(),
                    holder: holder.clone(),
                    allocation_time: now,
                }));
        }
        let (due_conflicts, pending_conflicts) = std::mem::take(&mut self.suspected_conflicts)
            .into_iter()
            .partition(|conflict| {
                now.saturating_duration_since(conflict.allocation_time) >= CONFIRMATION_DELAY
            });
        self.suspected_conflicts = pending_conflicts;
        let due_conflicts: Vec<SuspectedConflict> = due_conflicts;
        let conflicts = due_conflicts.into_iter().filter(|conflict| {
            // It is no conflict if the kubelet has allocated the device to a new container of the
            // same pod.
            let has_holder_in_same_pod =
                current_holders
                    .get(&conflict.device)
                    .is_some_and(|holders| {
                        let mut pods = holders.iter().map(|holder| &holder.pod_uid);
                        pods.any(|pod| *pod == conflict.holder.pod_uid)
                    });
            !has_holder_in_same_pod && self.cgroups.has_running_container(&conflict.holder.pod_uid)
        });
        let conflicts = conflicts
            .map(|conflict| (conflict.device, conflict.holder))
            .collect();
        self.update_holders(current_holders);
        conflicts
    }

    /// Adds the holders that the checkpoint lists. Removes holders that the checkpoint no longer
    /// lists and whose pods have ended.
    fn update_holders(&mut self, current_holders: Holders) {
        let previous_holders = self.holders.clone();
        let mut running_states: BTreeMap<String, bool> = BTreeMap::new();
        let cgroups = &self.cgroups;
        self.holders.retain(|device, holders| {
            holders.retain(|holder| {
                let listed_holders = current_holders.get(device);
                listed_holders.is_some_and(|holders| holders.contains(holder))
                    || *running_states
                        .entry(holder.pod_uid.clone())
                        .or_insert_with_key(|pod| cgroups.has_running_container(pod))
            });
            !holders.is_empty()
        });
        for (device, holders) in current_holders {
            if self.holders.len() < MAX_REMEMBERED_DEVICES || self.holders.contains_key(&device) {
                self.holders.entry(device).or_default().extend(holders);
            }
        }
        if self.holders != previous_holders || self.has_write_failed {
            self.save_holders();
        }
    }

    /// Writes the holders to the file. An error is only logged, because the plugin still detects
    /// conflicts without the file until it ends.
    fn save_holders(&mut self) {
        let result = self.holder_file.write(&self.holders);
        if let Err(error) = &result
            && !self.has_write_failed
        {
            tracing::warn!(
                "cannot save which pods have which devices in {}: {error}; if the plugin is \
                 restarted, it does not detect that the kubelet assigns a device of a running pod \
                 to another pod",
                self.holder_file.path().display()
            );
        }
        self.has_write_failed = result.is_err();
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

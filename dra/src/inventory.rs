//! Scans the host for the devices of the classes that this driver serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::host_inventory::{ClassScan, DueWork, HostScan, HostWatcher, Notifications};
use device_class::class::Server;
use device_class::config::Config;
use device_class::discover::{Device, FoundClass, FoundEdits, Health};
use device_class::name::ClassName;
use tokio::sync::watch;

use crate::claim::{ClaimStore, StoreLock};
use crate::class_devices::{ClassDevices, DivisibleDevice};
use crate::plugin_allocations::{ContainerDeviceIds, PluginAllocations};

/// The devices of all classes that the driver serves. Each class is a pool of ResourceSlices.
pub type Inventory = Arc<Vec<ClassDevices>>;

/// The task that scans the host repeatedly, and publishes the inventory to the other tasks.
#[derive(Debug)]
pub(crate) struct Scanner {
    host_watcher: HostWatcher,
    host_root: PathBuf,
    allocations: PluginAllocations,
    claim_store: ClaimStore,
    /// The devices that the kubelet allocated through the device plugin, as they were last read.
    /// `None` means that they could not be read yet.
    allocated_ids: Option<ContainerDeviceIds>,
    /// The last logged reason why the allocations cannot be read. A reason that is already logged
    /// is not logged again.
    unreadable_reason: Option<String>,
    inventory: watch::Sender<Inventory>,
    scan_end_sender: watch::Sender<bool>,
}

/// A receiver for the end of the first scan. Until then the inventory is empty, even if the host
/// has devices.
#[derive(Debug, Clone)]
pub(crate) struct FirstScan(watch::Receiver<bool>);

impl FirstScan {
    pub(crate) async fn wait_for_end(&self) {
        if self
            .0
            .clone()
            .wait_for(|has_ended| *has_ended)
            .await
            .is_err()
        {
            // The first scan has not ended, and the sender of its end is dropped only when the
            // process ends. Therefore this future need not complete.
            std::future::pending().await
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.0.borrow()
    }
}

impl Scanner {
    /// Creates a scanner and loads the classes. The first scan begins in [`Scanner::run`].
    pub(crate) fn new(
        config: Config,
        allocations: PluginAllocations,
        claim_store: ClaimStore,
    ) -> Self {
        Scanner {
            host_root: config.host_root.clone(),
            host_watcher: HostWatcher::new(config, Server::Dra),
            allocations,
            claim_store,
            allocated_ids: None,
            unreadable_reason: None,
            inventory: watch::channel(Inventory::default()).0,
            scan_end_sender: watch::channel(false).0,
        }
    }

    pub(crate) fn first_scan(&self) -> FirstScan {
        FirstScan(self.scan_end_sender.subscribe())
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Inventory> {
        self.inventory.subscribe()
    }

    /// Scans whenever devices or class files may have changed, and at least every `scan_interval`.
    pub(crate) async fn run(
        mut self,
        scan_interval: Duration,
        mut reload_notifications: Notifications,
    ) {
        self.scan().await;
        loop {
            if self
                .host_watcher
                .wait_for_change(scan_interval, None, &mut reload_notifications)
                .await
                == DueWork::LoadClasses
            {
                self.host_watcher.load_classes();
            }
            self.scan().await;
        }
    }

    async fn scan(&mut self) {
        let unreadable_reason = match self.allocations.read().await {
            Ok(allocated_ids) => {
                self.allocated_ids = Some(allocated_ids);
                None
            }
            Err(error) if self.allocated_ids.is_some() => Some(format!(
                "what the plugin gave away may have changed: {error}"
            )),
            Err(error) => Some(format!(
                "no device is free for claims before it is known what the plugin gave away: {error}"
            )),
        };
        if unreadable_reason != self.unreadable_reason {
            unreadable_reason
                .iter()
                .for_each(|reason| tracing::warn!("{reason}"));
            self.unreadable_reason = unreadable_reason;
        }
        let allocated_ids = self.allocated_ids.clone();
        let host_root = self.host_root.clone();
        // While a part of a device is created, its class is locked. A scan may then find the new
        // part, while the attributes that the vendor's program reported are still the old ones.
        // Therefore the previous devices of a locked class are kept.
        let classes = self.host_watcher.classes().iter();
        let divisible_classes = classes.filter(|class| !class.spec.parts.is_empty());
        let lock_attempts = divisible_classes.map(|class| {
            let name = class.name.clone();
            (self.claim_store.try_lock_class(&name), name)
        });
        let locks: Vec<(Option<StoreLock>, ClassName)> = lock_attempts.collect();
        let previous_inventory = self.inventory.borrow().clone();
        let scan_task = self.host_watcher.scan(move |scan| {
            let (mut classes, warnings) = collect_classes(scan, allocated_ids.as_ref(), &host_root);
            for (_, name) in locks.iter().filter(|(lock, _)| lock.is_none()) {
                let has_name = |class: &&ClassDevices| class.class.name == *name;
                let mut scanned_classes = classes.iter_mut();
                let scanned_class = scanned_classes.find(|class| class.class.name == *name);
                if let (Some(scanned_class), Some(previous_class)) =
                    (scanned_class, previous_inventory.iter().find(has_name))
                {
                    *scanned_class = ClassDevices {
                        are_allocations_known: scanned_class.are_allocations_known,
                        ..previous_class.clone()
                    };
                }
            }
            (classes, warnings)
        });
        if let Some(scanned_classes) = scan_task.await.result {
            self.inventory.send_if_modified(|previous_inventory| {
                let is_changed = !has_same_slices(previous_inventory, &scanned_classes);
                // The new inventory is stored even if the slices are equal, because it may have new
                // values that the slices lack, such as device numbers.
                *previous_inventory = Arc::new(scanned_classes);
                is_changed
            });
            self.scan_end_sender.send_replace(true);
        }
    }
}

/// Returns whether both lists of classes result in the same ResourceSlices. If so, nothing needs to
/// be published.
fn has_same_slices(old_classes: &[ClassDevices], new_classes: &[ClassDevices]) -> bool {
    let to_comparable = |classes: &[ClassDevices]| -> Vec<_> {
        let class_states = classes.iter().flat_map(|class| {
            let to_device_state = |(name, device): (&String, &Device)| {
                let Device {
                    health,
                    attributes,
                    numa,
                    group,
                    index,
                    replicas,
                    ..
                } = device;
                (
                    name.clone(),
                    health.clone(),
                    (attributes.clone(), index.clone(), group.clone()),
                    (*numa, *replicas),
                )
            };
            let named_devices = class.device_names.iter().zip(class.devices());
            let devices: Vec<_> = named_devices.map(to_device_state).collect();
            let to_divisible_state = |device: &DivisibleDevice| {
                let divisible = &device.division;
                let parts = (divisible.counters.clone(), divisible.parts.clone());
                (
                    to_device_state((&device.name, &divisible.whole_device)),
                    parts,
                )
            };
            let divisible_devices: Vec<_> = class
                .divisible_devices
                .iter()
                .map(to_divisible_state)
                .collect();
            Some((
                class.class.name.clone(),
                class.are_allocations_known,
                devices,
                divisible_devices,
            ))
        });
        class_states.collect()
    };
    to_comparable(old_classes) == to_comparable(new_classes)
}

/// Converts a scan into the devices of each class, and warnings. A device that a container already
/// has through the device plugin becomes unhealthy, so that it is not allocated to a claim at the
/// same time.
fn collect_classes(
    scan: HostScan<'_>,
    allocated_ids: Option<&ContainerDeviceIds>,
    host_root: &Path,
) -> (Vec<ClassDevices>, Vec<String>) {
    let mut warnings = scan.warnings;
    let mut classes = Vec::new();
    for scan in scan.classes {
        let ClassScan {
            class,
            mut inventory,
            control_nodes,
        } = scan;
        for device in &mut inventory.devices {
            if device.has_healthy_parts()
                && allocated_ids.is_some_and(|ids| ids.contains_device(device))
            {
                let resource = device.resource.as_str();
                let reason =
                    format!("the kubelet says that a container still has it as {resource}");
                device.health = Health::Unhealthy { reason };
            }
        }
        let edits = FoundEdits {
            nodes: control_nodes,
            ..FoundEdits::default()
        };
        let found_class = FoundClass { inventory, edits };
        let (mut class_devices, problems) =
            ClassDevices::new(class.clone(), found_class, host_root);
        class_devices.are_allocations_known = allocated_ids.is_some();
        let problems = problems.into_iter();
        warnings.extend(problems.map(|line| format!("{}: {line}", class.name)));
        classes.push(class_devices);
    }
    (classes, warnings)
}

//! Scans the host for the devices of the classes that this driver serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device_class::class::Server;
use device_class::config::Config;
use device_class::discover::{Device, FoundClass, FoundEdits, Health};
use device_class::name::ClassName;
use host_inventory::{ClassScan, HostScan, HostWatcher, Notifications, WatcherTask};
use tokio::sync::watch;

use crate::claim::{ClaimStore, StoreLock};
use crate::class_devices::{ClassDevices, DivisibleDevice};
use crate::plugin_allocations::{ContainerDeviceIds, PluginAllocations};

/// The devices of all classes. Each class is a pool.
pub type Inventory = Arc<Vec<ClassDevices>>;

/// Scans the host repeatedly, and publishes the inventory to the other tasks.
#[derive(Debug)]
pub(crate) struct Scanner {
    host: HostWatcher,
    root: PathBuf,
    allocations: PluginAllocations,
    store: ClaimStore,
    /// The device plugin's allocations as last read. `None` means that they could never be read.
    allocated: Option<ContainerDeviceIds>,
    /// The logged reason why the allocations cannot be read.
    unreadable: Option<String>,
    inventory: watch::Sender<Inventory>,
    has_scanned: watch::Sender<bool>,
}

/// Waits for the end of the first scan. Until then the inventory is empty, whatever the host has.
#[derive(Debug, Clone)]
pub(crate) struct FirstScan(watch::Receiver<bool>);

impl FirstScan {
    pub(crate) async fn wait(&self) {
        if self.0.clone().wait_for(|ended| *ended).await.is_err() {
            // The scanner has ended, and so the process is ending.
            std::future::pending().await
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.0.borrow()
    }
}

impl Scanner {
    /// Creates a scanner and loads the classes. The first scan begins in [`Scanner::run`].
    pub(crate) fn new(config: Config, allocations: PluginAllocations, store: ClaimStore) -> Self {
        Scanner {
            root: config.host_root.clone(),
            host: HostWatcher::new(config, Server::Dra),
            allocations,
            store,
            allocated: None,
            unreadable: None,
            inventory: watch::channel(Inventory::default()).0,
            has_scanned: watch::channel(false).0,
        }
    }

    pub(crate) fn first_scan(&self) -> FirstScan {
        FirstScan(self.has_scanned.subscribe())
    }

    /// Returns a receiver for the inventory, which is notified of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Inventory> {
        self.inventory.subscribe()
    }

    /// Scans whenever devices or class files may have changed, and at least every `period`.
    pub(crate) async fn run(mut self, period: Duration, mut reload: Notifications) {
        self.scan().await;
        loop {
            if self.host.wait_for_change(period, None, &mut reload).await == WatcherTask::Load {
                self.host.load_classes();
            }
            self.scan().await;
        }
    }

    async fn scan(&mut self) {
        let unreadable = match self.allocations.read().await {
            Ok(allocated) => {
                self.allocated = Some(allocated);
                None
            }
            Err(error) if self.allocated.is_some() => Some(format!(
                "what the plugin gave away may have changed: {error}"
            )),
            Err(error) => Some(format!(
                "no device is free for claims before it is known what the plugin gave away: {error}"
            )),
        };
        if unreadable != self.unreadable {
            unreadable.iter().for_each(|why| tracing::warn!("{why}"));
            self.unreadable = unreadable;
        }
        let allocated = self.allocated.clone();
        let root = self.root.clone();
        // While a part of a class is being created, its devices and its driver facts may
        // contradict each other. The scan of a class that is locked is therefore discarded.
        let classes = self.host.classes().iter();
        let divided = classes.filter(|class| !class.spec.parts.is_empty());
        let locks = divided.map(|class| {
            let name = class.name.clone();
            (self.store.try_lock_class(&name), name)
        });
        let locks: Vec<(Option<StoreLock>, ClassName)> = locks.collect();
        let previous = self.inventory.borrow().clone();
        let scanned = self.host.scan(move |scan| {
            let (mut classes, warnings) = collect_classes(scan, allocated.as_ref(), &root);
            for (_, name) in locks.iter().filter(|(lock, _)| lock.is_none()) {
                let is_class = |class: &&ClassDevices| class.class.name == *name;
                let mut scanned = classes.iter_mut();
                let scanned = scanned.find(|class| class.class.name == *name);
                if let (Some(scanned), Some(previous)) = (scanned, previous.iter().find(is_class)) {
                    *scanned = ClassDevices {
                        are_allocations_known: scanned.are_allocations_known,
                        ..previous.clone()
                    };
                }
            }
            (classes, warnings)
        });
        if let Some(scanned) = scanned.await.result {
            self.inventory.send_if_modified(|previous| {
                let changed = !has_same_slices(previous, &scanned);
                // The new inventory replaces the old one even if the slices are equal, because
                // data that no slice shows, such as device numbers, may differ.
                *previous = Arc::new(scanned);
                changed
            });
            self.has_scanned.send_replace(true);
        }
    }
}

/// Returns whether both inventories result in the same slices.
fn has_same_slices(left: &[ClassDevices], right: &[ClassDevices]) -> bool {
    let to_comparable = |classes: &[ClassDevices]| -> Vec<_> {
        let described = classes.iter().flat_map(|class| {
            let describe = |(name, device): (&String, &Device)| {
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
            let devices = class.names.iter().zip(class.devices());
            let devices: Vec<_> = devices.map(describe).collect();
            let describe_divisible = |device: &DivisibleDevice| {
                let divisible = &device.divisible;
                let parts = (divisible.counters.clone(), divisible.parts.clone());
                (describe((&device.name, &divisible.whole)), parts)
            };
            let divisible_devices: Vec<_> = class
                .divisible_devices
                .iter()
                .map(describe_divisible)
                .collect();
            Some((
                class.class.name.clone(),
                class.are_allocations_known,
                devices,
                divisible_devices,
            ))
        });
        described.collect()
    };
    to_comparable(left) == to_comparable(right)
}

/// Converts a scan into the devices of each class and warnings. A device that the device plugin
/// gave to a container becomes unhealthy, so that it is not allocated to a claim too.
fn collect_classes(
    scan: HostScan<'_>,
    allocated: Option<&ContainerDeviceIds>,
    root: &Path,
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
            if device.is_healthy_in_parts()
                && allocated.is_some_and(|allocated| allocated.contains_device(device))
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
        let (mut devices, faults) = ClassDevices::new(class.clone(), found_class, root);
        devices.are_allocations_known = allocated.is_some();
        let faults = faults.into_iter();
        warnings.extend(faults.map(|line| format!("{}: {line}", class.name)));
        classes.push(devices);
    }
    (classes, warnings)
}

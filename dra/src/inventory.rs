//! The devices of the classes that this driver serves, with their health in the last scan.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device_class::class::Server;
use device_class::config::Config;
use device_class::discover::{Device, FoundClass, FoundEdits, Health};
use device_class::name::ClassName;
use host_inventory::{ClassScan, HostScan, HostWatcher, Notifications, WatcherTask};
use tokio::sync::watch;

use crate::claim::{Store, StoreLock};
use crate::class_devices::{ClassDevices, DivisibleDevice};
use crate::plugin_allocations::{ContainerDeviceIds, PluginAllocations};

/// All classes. Each class is a pool.
pub type Inventory = Arc<Vec<ClassDevices>>;

/// Scans the host, and publishes the devices.
#[derive(Debug)]
pub(crate) struct Scanner {
    host: HostWatcher,
    root: PathBuf,
    allocations: PluginAllocations,
    store: Store,
    /// The device plugin's allocations when they were read last. `None` means that they could
    /// never be read.
    allocated: Option<ContainerDeviceIds>,
    /// The last logged reason for which the allocations cannot be read.
    unreadable: Option<String>,
    inventory: watch::Sender<Inventory>,
}

impl Scanner {
    /// Reads the classes and scans for the first time.
    pub(crate) async fn start(
        config: Config,
        allocations: PluginAllocations,
        store: Store,
    ) -> Self {
        let mut scanner = Scanner {
            root: config.host_root.clone(),
            host: HostWatcher::new(config, Server::Dra),
            allocations,
            store,
            allocated: None,
            unreadable: None,
            inventory: watch::channel(Inventory::default()).0,
        };
        scanner.scan().await;
        scanner
    }

    /// Returns a receiver for the inventory, which is notified of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Inventory> {
        self.inventory.subscribe()
    }

    /// Scans in a loop.
    pub(crate) async fn run(mut self, period: Duration, mut reload: Notifications) {
        loop {
            if self.host.wait(period, None, &mut reload).await == WatcherTask::Load {
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
        // While parts of a class are made, its devices and its driver facts may contradict
        // each other.
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
                        is_known: scanned.is_known,
                        ..previous.clone()
                    };
                }
            }
            (classes, warnings)
        });
        if let Some(scanned) = scanned.await.result {
            self.inventory.send_if_modified(|previous| {
                let changed = !is_same(previous, &scanned);
                // The new inventory is kept even if the slices are the same, because it may
                // differ in data that no slice shows, such as device numbers.
                *previous = Arc::new(scanned);
                changed
            });
        }
    }
}

/// Returns whether both inventories have the same slices.
fn is_same(left: &[ClassDevices], right: &[ClassDevices]) -> bool {
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
                class.is_known,
                devices,
                divisible_devices,
            ))
        });
        described.collect()
    };
    to_comparable(left) == to_comparable(right)
}

/// Collects the devices of a scan by class, and warnings about devices that are left out. A
/// device that the device plugin has given to a container must not be allocated again.
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
        devices.is_known = allocated.is_some();
        let faults = faults.into_iter();
        warnings.extend(faults.map(|line| format!("{}: {line}", class.name)));
        classes.push(devices);
    }
    (classes, warnings)
}

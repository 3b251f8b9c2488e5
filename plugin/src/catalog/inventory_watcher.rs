//! Scans the host for devices repeatedly, and publishes the inventory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use device_class::class::Server;
use device_class::config::Config;
use host_inventory::{HostWatcher, Notifications, ScanProgress, WatcherTask};
use injection_plan::cdi::directory::{UnusableClasses, is_removed_mount};
use tokio::sync::watch;

use super::{CdiFiles, Claimed, GracePeriod, Resources, ScanPause, changes, scan};
use crate::metrics::Metrics;
use crate::node_labels::{LabelFile, NodeLabels};

/// Keeps the inventory up to date.
#[derive(Debug)]
pub(crate) struct InventoryWatcher {
    host: HostWatcher,
    metrics: Metrics,
    grace: GracePeriod,
    claims: PathBuf,
    /// The CDI specifications, which are written before their devices are published. `None`
    /// means that none are written.
    cdi: Option<CdiFiles>,
    pause: ScanPause,
    /// The file with labels of the node. `None` means that none is written.
    labels: Option<LabelFile>,
    inventory: watch::Sender<Resources>,
}

impl InventoryWatcher {
    /// Creates a watcher for the classes of a configuration. `grace` is the grace period of
    /// missing devices, and `claims` is the directory with the records of prepared claims.
    pub(crate) fn new(
        config: Config,
        grace: GracePeriod,
        claims: PathBuf,
        cdi: Option<CdiFiles>,
        pause: ScanPause,
        metrics: Metrics,
    ) -> Self {
        let host = HostWatcher::new(config, Server::Plugin);
        metrics.class_errors(host.class_errors());
        InventoryWatcher {
            grace,
            claims,
            host,
            metrics,
            cdi,
            pause,
            labels: None,
            inventory: watch::channel(Resources::new()).0,
        }
    }

    /// Writes the labels of the node to a file at each scan.
    pub(crate) fn with_labels(self, labels: Option<LabelFile>) -> Self {
        InventoryWatcher { labels, ..self }
    }

    pub(crate) fn scans(&self) -> ScanProgress {
        self.host.scans()
    }

    /// Returns a receiver for the inventory, which is notified of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Resources> {
        self.inventory.subscribe()
    }

    /// Scans the host now, every `period`, and whenever an event may concern a
    /// device; reads the class files again when one changes, or on `reload`. Returns if the
    /// directory of CDI specifications was removed while it is mounted in this container.
    ///
    /// During a [`ScanPause`] there are no scans, and nothing is written or published.
    pub(crate) async fn run(mut self, period: Duration, mut reload: Notifications) {
        let mut changed = true;
        loop {
            self.pause.wait_for_end().await;
            self.scan(changed).await;
            let directory = self.cdi.as_ref().map(CdiFiles::directory);
            if directory.is_some_and(|directory| has_lost_mount(&directory)) {
                return;
            }
            let period = self.until_next_scan(period);
            // The directory of CDI specifications is watched as well, so that a file that is
            // removed is written again.
            let directory = self.cdi.as_ref().map(CdiFiles::directory);
            let next = self.host.wait(period, directory, &mut reload).await;
            changed = next == WatcherTask::Load && self.host.load_classes();
            self.metrics.class_errors(self.host.class_errors());
        }
    }

    /// Returns the time until the next scan: `period`, or less if the grace period of a device
    /// ends before.
    fn until_next_scan(&self, period: Duration) -> Duration {
        let end = self.grace.next_end();
        end.map_or(period, |end| {
            period.min(end.saturating_duration_since(Instant::now()))
        })
    }

    async fn scan(&mut self, classes_changed: bool) {
        let (mut cdi, claims) = (self.cdi.clone(), self.claims.clone());
        // If a class file cannot be read now, its devices may still be there.
        let broken = self.host.broken_classes().cloned();
        let labels = self.labels.clone();
        let scanned = self.host.scan(move |judged| {
            // Then the labels of before stay, too, as they do while devices are held back.
            let is_complete =
                broken.as_ref().is_some_and(BTreeSet::is_empty) && judged.unnamed.is_empty();
            let labels = labels.filter(|_| is_complete);
            let label_error =
                labels.and_then(|file| file.write(&NodeLabels::from_devices(&judged.classes)));
            let (claimed, unreadable) = Claimed::read(&claims);
            let mut scan = scan(judged, &claimed, cdi.as_ref().map(CdiFiles::description));
            let described = std::mem::take(&mut scan.described);
            let mut unusable = UnusableClasses {
                all: broken.is_none(),
                names: broken.unwrap_or_default(),
            };
            unusable.names.extend(std::mem::take(&mut scan.undescribed));
            let write = |cdi: &mut CdiFiles| cdi.write(described, &mut scan.inventory, &unusable);
            let errors = cdi.as_mut().map(write).unwrap_or_default();
            let cdi_errors = errors.len();
            let mut warnings = scan.warnings;
            warnings.extend(unreadable);
            warnings.extend(label_error);
            warnings.extend(errors.into_iter().map(|error| format!("CDI: {error}")));
            ((scan.inventory, cdi, cdi_errors), warnings)
        });
        let scanned = scanned.await;
        self.metrics.scanned(scanned.duration);
        let Some((inventory, cdi, cdi_errors)) = scanned.result else {
            return;
        };
        self.cdi = cdi;
        self.metrics.cdi_errors(cdi_errors);
        self.metrics.class_errors(self.host.class_errors());
        // If the classes have changed, the missing devices may not belong to any class any
        // more.
        let classes = self.host.classes().iter();
        let classes: BTreeSet<_> = match classes_changed {
            true => BTreeSet::new(),
            false => classes.map(|class| class.name.clone()).collect(),
        };
        let known = self.inventory.borrow().clone();
        let now = Instant::now();
        let settled = self.grace.apply(&known, inventory, &classes, now);
        self.publish(settled);
    }

    fn publish(&self, inventory: Resources) {
        self.inventory.send_if_modified(|known| {
            if *known == inventory {
                return false;
            }
            for (name, resource) in &inventory {
                if let Some(before) = known.get(name) {
                    for (device, change) in changes(before, resource) {
                        tracing::info!(resource = %name, %device, "{change}");
                    }
                }
            }
            *known = inventory;
            true
        });
    }
}

/// Returns whether the directory of CDI specifications was removed on the host, and logs it.
fn has_lost_mount(directory: &Path) -> bool {
    let is_lost = is_removed_mount(directory);
    if is_lost {
        tracing::error!(
            "{} was removed on the host, and is still mounted here: ending, so that this container \
             is started again with the directory that is there then",
            directory.display()
        );
    }
    is_lost
}

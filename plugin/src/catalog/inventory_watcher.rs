//! Scans the host repeatedly, writes the CDI specifications, and publishes the resources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use device_class::class::Server;
use device_class::config::Config;
use host_inventory::{HostWatcher, Notifications, ScanProgress, WatcherTask};
use injection_plan::cdi::directory::{UnusableClasses, is_removed_mount};
use tokio::sync::watch;

use super::{
    CdiFiles, ClaimedDevices, GracePeriod, Resources, ScanPause, build_resources, changes,
};
use crate::metrics::Metrics;
use crate::node_labels::{LabelFile, NodeLabels};

/// Keeps the published resources up to date.
#[derive(Debug)]
pub(crate) struct InventoryWatcher {
    host: HostWatcher,
    metrics: Metrics,
    grace: GracePeriod,
    claims: PathBuf,
    /// The CDI specifications, which are written before their devices are published. `None` means
    /// that another component brings the hook to containers.
    cdi: Option<CdiFiles>,
    pause: ScanPause,
    /// The file with node labels. `None` means that none is written.
    labels: Option<LabelFile>,
    inventory: watch::Sender<Resources>,
}

impl InventoryWatcher {
    /// Creates a watcher for the classes of a configuration. `grace` is the grace period of
    /// missing devices, and `claims` is the directory with the claim records of `boathook-dra`.
    pub(crate) fn new(
        config: Config,
        grace: GracePeriod,
        claims: PathBuf,
        cdi: Option<CdiFiles>,
        pause: ScanPause,
        metrics: Metrics,
    ) -> Self {
        let host = HostWatcher::new(config, Server::Plugin);
        metrics.set_class_errors(host.class_errors());
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

    /// Makes each scan write the node labels to a file.
    pub(crate) fn with_labels(self, labels: Option<LabelFile>) -> Self {
        InventoryWatcher { labels, ..self }
    }

    pub(crate) fn scans(&self) -> ScanProgress {
        self.host.scans()
    }

    /// Returns a receiver for the resources, which is notified of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Resources> {
        self.inventory.subscribe()
    }

    /// Scans the host now, every `period`, and whenever an event may concern a device. Loads the
    /// class files again when one has changed and on each `reload`. Returns if the directory of
    /// CDI specifications was removed on the host while it is mounted in this container.
    ///
    /// During a [`ScanPause`] nothing is scanned, written or published.
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
            // The directory of CDI specifications is watched too, so that a removed file is
            // written again.
            let directory = self.cdi.as_ref().map(CdiFiles::directory);
            let next = self
                .host
                .wait_for_change(period, directory, &mut reload)
                .await;
            changed = next == WatcherTask::Load && self.host.load_classes();
            self.metrics.set_class_errors(self.host.class_errors());
        }
    }

    /// Returns the time until the next scan: `period`, or less if a grace period ends before.
    fn until_next_scan(&self, period: Duration) -> Duration {
        let end = self.grace.next_end();
        end.map_or(period, |end| {
            period.min(end.saturating_duration_since(Instant::now()))
        })
    }

    async fn scan(&mut self, classes_changed: bool) {
        let (mut cdi, claims) = (self.cdi.clone(), self.claims.clone());
        // The devices of an unreadable class file may still exist.
        let broken = self.host.broken_classes().cloned();
        let labels = self.labels.clone();
        let scanned = self.host.scan(move |host_scan| {
            // The previous labels are kept while the scan is incomplete: while a class file is
            // unreadable, or devices are held back.
            let is_complete =
                broken.as_ref().is_some_and(BTreeSet::is_empty) && host_scan.unnamed.is_empty();
            let labels = labels.filter(|_| is_complete);
            let label_error =
                labels.and_then(|file| file.write(&NodeLabels::from_devices(&host_scan.classes)));
            let (claimed, unreadable) = ClaimedDevices::read(&claims);
            let mut scan =
                build_resources(host_scan, &claimed, cdi.as_ref().map(CdiFiles::description));
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
        self.metrics.observe_scan(scanned.duration);
        let Some((inventory, cdi, cdi_errors)) = scanned.result else {
            return;
        };
        self.cdi = cdi;
        self.metrics.set_cdi_errors(cdi_errors);
        self.metrics.set_class_errors(self.host.class_errors());
        // After a change of the classes, missing devices may belong to no class any more.
        let classes = self.host.classes().iter();
        let classes: BTreeSet<_> = if classes_changed {
            BTreeSet::new()
        } else {
            classes.map(|class| class.name.clone()).collect()
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

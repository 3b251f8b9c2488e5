//! Scans the host repeatedly, writes the CDI specifications, and publishes the resources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use daemon::host_inventory::{DueWork, HostWatcher, Notifications, ScanProgress};
use device_class::class::Server;
use device_class::config::Config;
use injection_plan::cdi::directory::{UnusableClasses, is_removed_mount};
use tokio::sync::watch;

use super::{
    CdiFiles, ClaimedDevices, GracePeriod, PodAllocations, Resources, ScanPause, build_resources,
    describe_changes,
};
use crate::metrics::Metrics;
use crate::node_labels::{LabelFile, NodeLabels};

/// The task that scans the host, writes the CDI specifications, and publishes the resources.
#[derive(Debug)]
pub(crate) struct InventoryWatcher {
    host_watcher: HostWatcher,
    metrics: Metrics,
    grace_period: GracePeriod,
    /// The directory with the claim records of `boathook-dra`.
    claim_records_dir: PathBuf,
    /// The devices that pods got before the classes were changed.
    pod_allocations: PodAllocations,
    /// Writes the CDI specifications before the devices are published. `None` means that no
    /// specifications are needed, because something else, such as a runtime handler, adds the hook
    /// to containers.
    cdi_files: Option<CdiFiles>,
    scan_pause: ScanPause,
    /// The file with node labels for Node Feature Discovery. `None` means that no labels are
    /// written.
    label_file: Option<LabelFile>,
    /// True after all other instances of the plugin have ended. The next scan then takes over the
    /// CDI specification files that they left. For example, an update may have been undone, and
    /// only the newer version served a class.
    other_instances_ended: Arc<AtomicBool>,
    resources: watch::Sender<Resources>,
}

impl InventoryWatcher {
    /// Creates a watcher for the classes of a configuration. `claim_records_dir` is the directory
    /// with the claim records of `boathook-dra`.
    pub(crate) fn new(
        config: Config,
        grace_period: GracePeriod,
        claim_records_dir: PathBuf,
        pod_allocations: PodAllocations,
        cdi_files: Option<CdiFiles>,
        scan_pause: ScanPause,
        metrics: Metrics,
    ) -> Self {
        let host_watcher = HostWatcher::new(config, Server::Plugin);
        metrics.set_class_errors(host_watcher.class_errors());
        InventoryWatcher {
            grace_period,
            claim_records_dir,
            pod_allocations,
            host_watcher,
            metrics,
            cdi_files,
            scan_pause,
            label_file: None,
            other_instances_ended: Arc::default(),
            resources: watch::channel(Resources::new()).0,
        }
    }

    pub(crate) fn with_label_file(self, label_file: Option<LabelFile>) -> Self {
        InventoryWatcher { label_file, ..self }
    }

    /// Returns a flag, which the caller sets when all other instances of the plugin have ended. The
    /// next scan then takes over their files, and removes those that are not needed.
    pub(crate) fn other_instances_ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.other_instances_ended)
    }

    pub(crate) fn scan_progress(&self) -> ScanProgress {
        self.host_watcher.scan_progress()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Resources> {
        self.resources.subscribe()
    }

    /// Scans the host at once, then every `scan_interval`, and whenever an event may concern a
    /// device. Loads the class files again when one of them has changed, and when
    /// `reload_notifications` has a notification. Returns if the directory of CDI specifications
    /// was removed on the host while it is mounted in this container.
    ///
    /// During a [`ScanPause`] nothing is scanned, written or published.
    pub(crate) async fn run(
        mut self,
        scan_interval: Duration,
        mut reload_notifications: Notifications,
    ) {
        let mut have_classes_changed = true;
        loop {
            self.scan_pause.wait_for_end().await;
            if self.other_instances_ended.swap(false, Ordering::Relaxed)
                && let Some(files) = &mut self.cdi_files
            {
                files.take_over_all_files();
            }
            self.scan(have_classes_changed).await;
            let directory = self.cdi_files.as_ref().map(CdiFiles::directory);
            if directory.is_some_and(|directory| is_mount_removed(&directory)) {
                return;
            }
            let time_until_scan = self.time_until_next_scan(scan_interval);
            // A change in the directory of CDI specifications also causes a scan, which writes a
            // removed file again.
            let directory = self.cdi_files.as_ref().map(CdiFiles::directory);
            let due_task = self
                .host_watcher
                .wait_for_change(time_until_scan, directory, &mut reload_notifications)
                .await;
            have_classes_changed =
                due_task == DueWork::LoadClasses && self.host_watcher.load_classes();
            self.metrics
                .set_class_errors(self.host_watcher.class_errors());
        }
    }

    /// Returns the time until the next scan: `scan_interval`, or less if the grace period of a
    /// missing device ends earlier.
    fn time_until_next_scan(&self, scan_interval: Duration) -> Duration {
        let next_end_time = self.grace_period.next_end_time();
        next_end_time.map_or(scan_interval, |next_end_time| {
            scan_interval.min(next_end_time.saturating_duration_since(Instant::now()))
        })
    }

    async fn scan(&mut self, have_classes_changed: bool) {
        let mut cdi_files = self.cdi_files.clone();
        let claim_records_dir = self.claim_records_dir.clone();
        let pod_allocations = self.pod_allocations.clone();
        // The devices of a class with an unreadable file may still exist, so their specifications
        // are kept.
        let broken_classes = self.host_watcher.broken_classes().cloned();
        let label_file = self.label_file.clone();
        let scan_task = self.host_watcher.scan(move |mut host_scan| {
            // A scan is incomplete if a class file is unreadable, or if the ids of a class's
            // devices are not known yet. In that case the previous labels are kept.
            let is_complete = broken_classes.as_ref().is_some_and(BTreeSet::is_empty)
                && host_scan.unnamed_classes.is_empty();
            let label_file = label_file.filter(|_| is_complete);
            let label_error = label_file
                .and_then(|file| file.write(&NodeLabels::from_devices(&host_scan.classes)));
            let unreadable_log_count = host_scan.classes_without_log.len();
            let (claimed_devices, record_errors) = ClaimedDevices::read(&claim_records_dir);
            pod_allocations.withhold_renamed_devices(&mut host_scan);
            let specification_form = cdi_files.as_ref().map(CdiFiles::specification_form);
            let mut scan = build_resources(host_scan, &claimed_devices, specification_form);
            let cdi_devices = std::mem::take(&mut scan.cdi_devices);
            let mut unusable_classes = UnusableClasses {
                may_include_others: broken_classes.is_none(),
                names: broken_classes.unwrap_or_default(),
            };
            unusable_classes
                .names
                .extend(std::mem::take(&mut scan.classes_without_cdi));
            let write_files = |files: &mut CdiFiles| {
                files.write(cdi_devices, &mut scan.resources, &unusable_classes)
            };
            let cdi_errors = cdi_files.as_mut().map(write_files).unwrap_or_default();
            let cdi_error_count = cdi_errors.len();
            let mut warnings = scan.warnings;
            warnings.extend(record_errors);
            warnings.extend(label_error);
            warnings.extend(cdi_errors.into_iter().map(|error| format!("CDI: {error}")));
            let counts = (cdi_error_count, unreadable_log_count);
            ((scan.resources, cdi_files, counts), warnings)
        });
        let outcome = scan_task.await;
        self.metrics.observe_scan(outcome.duration);
        let Some((scanned_resources, cdi_files, counts)) = outcome.result else {
            return;
        };
        let (cdi_error_count, unreadable_log_count) = counts;
        self.cdi_files = cdi_files;
        self.metrics.set_cdi_errors(cdi_error_count);
        self.metrics.set_unreadable_logs(unreadable_log_count);
        self.metrics
            .set_class_errors(self.host_watcher.class_errors());
        // If the class files have changed, missing devices get no grace period: the class that
        // described a missing device may no longer exist.
        let classes = self.host_watcher.classes().iter();
        let classes: BTreeSet<_> = if have_classes_changed {
            BTreeSet::new()
        } else {
            classes.map(|class| class.name.clone()).collect()
        };
        let previous_resources = self.resources.borrow().clone();
        let now = Instant::now();
        let advertised =
            self.grace_period
                .apply(&previous_resources, scanned_resources, &classes, now);
        self.publish(advertised);
    }

    fn publish(&self, resources: Resources) {
        self.resources.send_if_modified(|published| {
            if *published == resources {
                return false;
            }
            for (name, resource) in &resources {
                if let Some(previous) = published.get(name) {
                    for (device, change) in describe_changes(previous, resource) {
                        tracing::info!(resource = %name, %device, "{change}");
                    }
                }
            }
            *published = resources;
            true
        });
    }
}

/// Returns whether the mounted directory of CDI specifications was removed on the host. Logs an
/// error if so.
fn is_mount_removed(directory: &Path) -> bool {
    let is_removed = is_removed_mount(directory);
    if is_removed {
        tracing::error!(
            "{} was removed on the host, and is still mounted here: ending, so that this container \
             is started again with the directory that is there then",
            directory.display()
        );
    }
    is_removed
}

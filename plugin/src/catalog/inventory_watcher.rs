//! Scans the host for devices repeatedly, and publishes the inventory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::host::RealHost;
use device_class::load::ClassSource;
use tokio::sync::watch;

use super::cdi_files::Written;
use super::slow_scan::{ScanProgress, wait_for_scan};
use super::{CdiFiles, Classes, GracePeriod, Memory, Resources, Scan, changes, scan};
use crate::dir_watch::Interest;
use crate::faults::Faults;
use crate::hotplug::{self, Watching};
use crate::metrics::Metrics;
use crate::notify::{Notified, Notifier};

/// How long to wait for further events after the first one.
const SETTLE: Duration = Duration::from_millis(10);

/// The least time between two scans.
const REST: Duration = Duration::from_millis(50);

/// The part of the scan to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    Scan,
    /// The device scan, after reading the class files.
    Load,
}

#[derive(Debug, Clone)]
pub(crate) struct ScanParameters {
    /// The directories of class files, the host root, and the enabled classes.
    pub(crate) config: Config,
    /// The grace period of missing devices.
    pub(crate) forget: Duration,
}

/// Keeps the inventory up to date.
#[derive(Debug)]
pub(crate) struct InventoryWatcher {
    source: ScanParameters,
    metrics: Metrics,
    scans: ScanProgress,
    grace: GracePeriod,
    memory: Memory,
    /// What is written before devices are published; `None`: nothing.
    cdi: Option<CdiFiles>,
    classes: Arc<Vec<DeviceClass>>,
    class_files: Vec<ClassSource>,
    /// Whether no class file could be read the last time.
    unread: bool,
    inventory: watch::Sender<Resources>,
    warnings: Faults,
    class_errors: Faults,
    class_names: Option<String>,
}

impl InventoryWatcher {
    /// Reads the classes.
    pub(crate) fn new(source: ScanParameters, cdi: Option<CdiFiles>, metrics: Metrics) -> Self {
        let mut watcher = InventoryWatcher {
            grace: GracePeriod::new(source.forget),
            memory: Memory::of_host(&source.config.host_root),
            source,
            metrics,
            scans: ScanProgress::default(),
            cdi,
            classes: Arc::default(),
            class_files: Vec::new(),
            unread: false,
            inventory: watch::channel(Resources::new()).0,
            warnings: Faults::default(),
            class_errors: Faults::default(),
            class_names: None,
        };
        watcher.load_classes();
        watcher
    }

    pub(crate) fn scans(&self) -> ScanProgress {
        self.scans.clone()
    }

    /// The inventory, and notification of its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Resources> {
        self.inventory.subscribe()
    }

    /// Scans the host now, every `period`, and whenever an event may concern a
    /// device; reads the class files again when one changes, or on `reload`.
    pub(crate) async fn run(mut self, period: Duration, mut reload: Notified) {
        self.scan_timed(true).await;
        let (device, mut devices) = Notifier::new();
        let (file, mut files) = Notifier::new();
        let class_files = self.source.config.classes.iter().cloned().collect();
        let _classes = Watching::directories(&class_files, Interest::Contents, file);
        let _uevents = Watching::uevents(device.clone());
        let mut watched = BTreeSet::new();
        let mut _watching = None;
        loop {
            let mut directories =
                hotplug::directories(&self.classes, &self.source.config.host_root);
            // A file that somebody removes is written again.
            directories.extend(self.cdi.as_ref().map(CdiFiles::directory));
            if directories != watched {
                _watching = Some(Watching::directories(
                    &directories,
                    Interest::Names,
                    device.clone(),
                ));
                watched = directories;
            }
            let again = tokio::select! {
                () = tokio::time::sleep(self.until_next_scan(period)) => Again::Scan,
                () = devices.wait() => Again::Scan,
                () = files.wait() => Again::Load,
                () = reload.wait() => Again::Load,
            };
            // Nodes appear in bursts, and an editor writes a file in steps.
            tokio::time::sleep(SETTLE).await;
            devices.clear();
            let changed = (again == Again::Load || self.unread) && {
                files.clear();
                self.load_classes()
            };
            self.scan_timed(changed).await;
            tokio::time::sleep(REST).await;
        }
    }

    /// The period, or less if the grace period of a device ends before.
    fn until_next_scan(&self, period: Duration) -> Duration {
        let end = self.grace.next_end();
        end.map_or(period, |end| {
            period.min(end.saturating_duration_since(Instant::now()))
        })
    }

    /// Reads the class files, logs what changed, and returns whether anything
    /// did.
    fn load_classes(&mut self) -> bool {
        let loaded = Classes::load(&self.source.config);
        let errors = loaded
            .as_ref()
            .map_or_else(std::slice::from_ref, |c| &c.errors);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        // No file or directory could be read, for example for lack of a free
        // descriptor.
        self.unread = match &loaded {
            Ok(classes) => classes.sources.is_empty() && !errors.is_empty(),
            Err(_) => true,
        };
        let message = match self.unread {
            true => "cannot read the classes, keeping previous ones",
            false => "class left out",
        };
        self.metrics.class_errors(errors.len());
        self.class_errors
            .now(errors, |error| tracing::error!("{message}: {error}"));
        let Ok(Classes {
            usable, sources, ..
        }) = loaded
        else {
            return false;
        };
        if self.unread {
            return false;
        }
        let names: Vec<String> = usable.iter().map(|class| class.name.to_string()).collect();
        let names = names.join(", ");
        if self.class_names.as_ref() != Some(&names) {
            if names.is_empty() {
                let directories = self
                    .source
                    .config
                    .classes
                    .iter()
                    .map(|path| path.display().to_string());
                let directories: Vec<String> = directories.collect();
                let directories = directories.join(", ");
                tracing::warn!("no class files in {directories}, nothing to advertise");
            } else {
                tracing::info!("classes: {names}");
            }
            self.class_names = Some(names);
        }
        self.classes = Arc::new(usable);
        let changed = self.class_files != sources;
        self.class_files = sources;
        changed
    }

    async fn scan_timed(&mut self, classes_changed: bool) {
        self.scans.begin();
        self.scan(classes_changed).await;
        self.metrics.scanned(self.scans.end());
    }

    /// One device scan. It does not run on the thread that serves: a driver may
    /// block reads of its files.
    async fn scan(&mut self, classes_changed: bool) {
        let classes = Arc::clone(&self.classes);
        let root = self.source.config.host_root.clone();
        let mut memory = std::mem::replace(&mut self.memory, Memory::of_host(&root));
        let mut cdi = self.cdi.clone();
        // The devices of a class that cannot be read now are not known to be gone.
        let all_known = self.class_errors.len() == 0;
        let scanning = tokio::task::spawn_blocking(move || {
            let scan = match RealHost::open(&root) {
                Ok(host) => {
                    let description = cdi.as_ref().map(CdiFiles::description);
                    let now = Instant::now();
                    let mut scan = scan(&classes, &host, &mut memory, now, description);
                    let described = std::mem::take(&mut scan.described);
                    let inventory = &mut scan.inventory;
                    let written = cdi
                        .as_mut()
                        .map(|cdi| cdi.write(described, inventory, all_known));
                    Ok((scan, written.unwrap_or_default()))
                }
                Err(error) => Err(format!(
                    "cannot open host root {}, keeping previous scan results: {error}",
                    root.display()
                )),
            };
            (scan, memory, cdi)
        });
        let scanned = wait_for_scan(scanning).await;
        match scanned {
            Ok((scan, memory, cdi)) => {
                self.memory = memory;
                self.cdi = cdi;
                let (scan, written) = match scan {
                    Ok(scan) => scan,
                    Err(warning) => return self.warn(vec![warning]),
                };
                let Scan {
                    inventory,
                    mut warnings,
                    ..
                } = scan;
                let Written { changes, errors } = written;
                for change in changes {
                    tracing::info!("CDI: {change}");
                }
                self.metrics.cdi_errors(errors.len());
                warnings.extend(errors.into_iter().map(|error| format!("CDI: {error}")));
                self.warn(warnings);
                // Changed classes may not describe the missing devices any more.
                let classes = match classes_changed {
                    true => BTreeSet::new(),
                    false => self
                        .classes
                        .iter()
                        .map(|class| class.name.clone())
                        .collect(),
                };
                let known = self.inventory.borrow().clone();
                let now = Instant::now();
                let settled = self.grace.apply(&known, inventory, &classes, now);
                self.publish(settled);
            }
            Err(error) => {
                tracing::error!("device scan failed, keeping previous results: {error}")
            }
        }
    }

    fn warn(&mut self, warnings: Vec<String>) {
        self.warnings
            .now(warnings, |warning| tracing::warn!("{warning}"));
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

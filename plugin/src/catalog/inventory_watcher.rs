//! Looks at the host again and again, and tells what is there now.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::host::RealHost;
use device_class::load::ClassSource;
use tokio::sync::watch;

use super::slow_scan::wait_for_scan;
use super::{Classes, GracePeriod, Inventory, Memory, Scan, changes, scan};
use crate::dir_watch::Interest;
use crate::hotplug::{self, Watching};
use crate::metrics::Metrics;
use crate::notify::{Notified, Notifier};

/// How long to let things settle after the first word of a change.
const SETTLE: Duration = Duration::from_millis(10);

/// How long to rest between two looks, however much goes on.
const REST: Duration = Duration::from_millis(50);

/// What to do again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// Look at the host.
    Look,
    /// Read the class files, too.
    Load,
}

/// Where classes and devices are looked for.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The directories of class files, the root of the host's tree, and which
    /// classes the host offers.
    pub(crate) config: Config,
    /// How long a device that is missing counts as unhealthy, before it is
    /// gone.
    pub(crate) forget: Duration,
}

/// Keeps the inventory up to date.
#[derive(Debug)]
pub(crate) struct InventoryWatcher {
    source: Source,
    metrics: Metrics,
    settle: GracePeriod,
    memory: Memory,
    classes: Arc<Vec<DeviceClass>>,
    class_files: Vec<ClassSource>,
    /// Whether the files have to be read again for want of success.
    unread: bool,
    inventory: watch::Sender<Inventory>,
    /// What was said already, so that it is said once.
    warnings: Vec<String>,
    class_errors: Vec<String>,
    class_names: Option<String>,
}

impl InventoryWatcher {
    /// Reads the classes and looks at the host for the first time.
    pub(crate) async fn start(source: Source, metrics: Metrics) -> Self {
        let mut watcher = InventoryWatcher {
            settle: GracePeriod::new(source.forget),
            memory: Memory::new(),
            source,
            metrics,
            classes: Arc::default(),
            class_files: Vec::new(),
            unread: false,
            inventory: watch::channel(Inventory::new()).0,
            warnings: Vec::new(),
            class_errors: Vec::new(),
            class_names: None,
        };
        watcher.load_classes();
        watcher.look(true).await;
        watcher
    }

    /// The inventory, and word of its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Inventory> {
        self.inventory.subscribe()
    }

    /// Looks at the host every `period` and, soon after each, whenever
    /// something happens that may be about a device; reads the class files
    /// again when one is changed, or `reload` says so.
    pub(crate) async fn run(mut self, period: Duration, mut reload: Notified) {
        let (device, mut devices) = Notifier::new();
        let (file, mut files) = Notifier::new();
        let class_files = self.source.config.classes.iter().cloned().collect();
        let _classes = Watching::directories(&class_files, Interest::Contents, file);
        let _uevents = Watching::uevents(device.clone());
        let mut watched = BTreeSet::new();
        let mut _watching = None;
        loop {
            let directories = hotplug::directories(&self.classes, &self.source.config.host_root);
            if directories != watched {
                _watching = Some(Watching::directories(
                    &directories,
                    Interest::Names,
                    device.clone(),
                ));
                watched = directories;
            }
            let again = tokio::select! {
                () = tokio::time::sleep(self.until_next_look(period)) => Again::Look,
                () = devices.wait() => Again::Look,
                () = files.wait() => Again::Load,
                () = reload.wait() => Again::Load,
            };
            // Nodes come in bursts, and an editor writes a file in steps.
            tokio::time::sleep(SETTLE).await;
            devices.clear();
            let changed = (again == Again::Load || self.unread) && {
                files.clear();
                self.load_classes()
            };
            self.look(changed).await;
            tokio::time::sleep(REST).await;
        }
    }

    /// The period, or less when a missing device is to be forgotten before.
    fn until_next_look(&self, period: Duration) -> Duration {
        let end = self.settle.next_end();
        end.map_or(period, |end| {
            period.min(end.saturating_duration_since(Instant::now()))
        })
    }

    /// Reads the class files, says what is different since the last time, and
    /// returns whether anything is.
    fn load_classes(&mut self) -> bool {
        let loaded = Classes::load(&self.source.config);
        let errors = loaded
            .as_ref()
            .map_or_else(std::slice::from_ref, |c| &c.errors);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        // Not one file could be read, for want of a descriptor for example; or
        // not even which there are.
        self.unread = match &loaded {
            Ok(classes) => classes.sources.is_empty() && !errors.is_empty(),
            Err(_) => true,
        };
        let said = match self.unread {
            true => "classes can't be read, what was read before stays",
            false => "class left out",
        };
        for error in errors
            .iter()
            .filter(|error| !self.class_errors.contains(error))
        {
            tracing::error!("{said}: {error}");
        }
        self.metrics.class_errors(errors.len());
        self.class_errors = errors;
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
                let looked = self
                    .source
                    .config
                    .classes
                    .iter()
                    .map(|path| path.display().to_string());
                let looked: Vec<String> = looked.collect();
                let looked = looked.join(", ");
                tracing::warn!("no class in {looked}: nothing to advertise until there is one");
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

    /// One look at the host. It is not done on the thread that serves: a
    /// driver may keep a read of its attributes waiting.
    async fn look(&mut self, classes_changed: bool) {
        let (classes, root) = (
            Arc::clone(&self.classes),
            self.source.config.host_root.clone(),
        );
        let mut memory = std::mem::take(&mut self.memory);
        let looking = tokio::task::spawn_blocking(move || {
            let scan = match RealHost::open(&root) {
                Ok(host) => Ok(scan(&classes, &host, &mut memory, Instant::now())),
                Err(error) => Err(format!(
                    "the host's root {} can't be opened, what was found before stays: {error}",
                    root.display()
                )),
            };
            (scan, memory)
        });
        let since = Instant::now();
        let looked = wait_for_scan(looking).await;
        self.metrics.scanned(since.elapsed());
        match looked {
            Ok((scan, memory)) => {
                self.memory = memory;
                let Scan {
                    inventory,
                    warnings,
                } = match scan {
                    Ok(scan) => scan,
                    Err(warning) => return self.warn(vec![warning]),
                };
                self.warn(warnings);
                // By other classes, what is missing may not be meant any more.
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
                let settled = self.settle.settle(&known, inventory, &classes, now);
                self.publish(settled);
            }
            Err(error) => {
                tracing::error!("the look at the host failed, the last one stays: {error}")
            }
        }
    }

    /// Says what was not said the last time.
    fn warn(&mut self, warnings: Vec<String>) {
        let new = |warning: &&String| !self.warnings.contains(warning);
        for warning in warnings.iter().filter(new) {
            tracing::warn!("{warning}");
        }
        self.warnings = warnings;
    }

    fn publish(&self, inventory: Inventory) {
        self.inventory.send_if_modified(|known| {
            if *known == inventory {
                return false;
            }
            for (name, resource) in &inventory {
                if let Some(before) = known.get(name) {
                    for change in changes(before, resource) {
                        tracing::info!("{name}: {change}");
                    }
                }
            }
            *known = inventory;
            true
        });
    }
}

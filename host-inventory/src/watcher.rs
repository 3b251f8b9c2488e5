//! Scans the host for devices again whenever devices or class files may have changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::class::Server;
use device_class::config::Config;
use device_class::host::RealHost;
use device_class::load::ClassSource;
use device_class::strict_toml::FileError;
use tokio::task::JoinHandle;

use crate::classes::UnmountedClasses;
use crate::dir_watch::Interest;
use crate::hotplug::{self, WatchTask};
use crate::quick_look::have_changed;
use crate::slow_scan::wait_for_scan;
use crate::{
    Classes, Faults, HostScan, Notifications, Notifier, ScanMemory, ScanProgress, scan_host,
};

/// The time between the first event and the scan, in which further events are collected.
const SETTLE: Duration = Duration::from_millis(10);

/// The shortest time between two scans.
const REST: Duration = Duration::from_millis(50);

/// The time between two looks at what tells that a device no longer answers.
const LOOK: Duration = Duration::from_secs(1);

/// The next task of the program that waits for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatcherTask {
    /// Scan the host, because a device may have changed or the period has passed.
    Scan,
    /// Read the class files and scan the host, because a class may have changed.
    Load,
}

/// The result of one scan.
#[derive(Debug)]
pub struct ScanOutcome<T> {
    /// The value that the caller's function made of the scan. `None` means that the scan
    /// failed; the reason was logged.
    pub result: Option<T>,
    /// The duration of the scan.
    pub duration: Duration,
}

/// Scans one host repeatedly. Keeps the classes and the values that health checks compare
/// from one scan to the next.
#[derive(Debug)]
pub struct HostWatcher {
    config: Config,
    server: Server,
    memory: ScanMemory,
    classes: Arc<Vec<DeviceClass>>,
    class_files: Vec<ClassSource>,
    /// Whether the last attempt to read the class files failed as a whole.
    unread: bool,
    events: Option<Events>,
    /// The look that runs, which a driver may block.
    looking: Option<JoinHandle<bool>>,
    /// Notified when a program of a driver has reported something that a scan has to judge.
    program: Notifier,
    programs: Notifications,
    scans: ScanProgress,
    warnings: Faults,
    class_errors: Faults,
    /// The names of the classes whose files cannot be used.
    broken_classes: BTreeSet<String>,
    /// The classes that read a path that is not mounted.
    unmounted: Arc<UnmountedClasses>,
    /// The mistakes in classes that the last scan has shown.
    scan_errors: Faults,
    unknown_classes: Faults,
    class_names: Option<String>,
}

/// The notifications about devices and class files, with the tasks that send them.
#[derive(Debug)]
struct Events {
    device: Notifier,
    devices: Notifications,
    files: Notifications,
    watched: BTreeSet<PathBuf>,
    watching: Option<WatchTask>,
    _classes: WatchTask,
    _uevents: WatchTask,
}

impl HostWatcher {
    /// Returns a watcher for the classes that `server` offers, and reads their class files.
    pub fn new(config: Config, server: Server) -> Self {
        let (program, programs) = Notifier::new();
        let mut watcher = HostWatcher {
            memory: ScanMemory::of_host(&config.host_root),
            program,
            programs,
            config,
            server,
            classes: Arc::default(),
            class_files: Vec::new(),
            unread: false,
            events: None,
            looking: None,
            scans: ScanProgress::default(),
            warnings: Faults::default(),
            class_errors: Faults::default(),
            broken_classes: BTreeSet::new(),
            unmounted: Arc::default(),
            scan_errors: Faults::default(),
            unknown_classes: Faults::default(),
            class_names: None,
        };
        watcher.load_classes();
        watcher
    }

    /// Returns the classes as they were read last.
    pub fn classes(&self) -> &[DeviceClass] {
        &self.classes
    }

    /// Returns the number of classes that cannot be used, or of which devices are left out
    /// because of a mistake in the configuration.
    pub fn class_errors(&self) -> usize {
        self.class_errors.count() + self.scan_errors.count()
    }

    /// Returns the names of the classes whose files cannot be used. Their devices may still
    /// exist. Returns `None` if this may be any class, because no class file could be read.
    pub fn broken_classes(&self) -> Option<&BTreeSet<String>> {
        (!self.unread).then_some(&self.broken_classes)
    }

    pub fn scans(&self) -> ScanProgress {
        self.scans.clone()
    }

    /// Waits until the host has to be scanned: when `period` has passed, when an event may
    /// be about a device or a file in `directories`, when a class file changes, or when
    /// `reload` is notified.
    pub async fn wait(
        &mut self,
        period: Duration,
        directories: Option<PathBuf>,
        reload: &mut Notifications,
    ) -> WatcherTask {
        if self.events.is_some() {
            tokio::time::sleep(REST).await;
        }
        let mut watched = hotplug::watched_directories(&self.classes, &self.config.host_root);
        watched.extend(directories);
        let class_files = &self.config.classes;
        let events = self.events.get_or_insert_with(|| Events::new(class_files));
        if watched != events.watched {
            let device = events.device.clone();
            events.watching = Some(WatchTask::directories(&watched, Interest::Names, device));
            events.watched = watched;
        }
        let due = self.memory.next_due();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        let period = due.map_or(period, |due| period.min(due));
        let (memory, root) = (&mut self.memory, &self.config.host_root);
        let next = tokio::select! {
            () = tokio::time::sleep(period) => WatcherTask::Scan,
            () = wait_for_fault(memory, root, &mut self.looking) => WatcherTask::Scan,
            () = events.devices.wait() => WatcherTask::Scan,
            () = self.programs.wait() => WatcherTask::Scan,
            () = events.files.wait() => WatcherTask::Load,
            () = reload.wait() => WatcherTask::Load,
        };
        // A driver creates several nodes at once, and an editor writes a file in several
        // steps. This delay lets one scan see all of them.
        tokio::time::sleep(SETTLE).await;
        events.devices.clear();
        match next {
            WatcherTask::Scan if !self.unread => WatcherTask::Scan,
            _ => {
                events.files.clear();
                WatcherTask::Load
            }
        }
    }

    /// Reads the class files and logs new errors. Returns whether a class file has changed.
    /// If no class file can be read, the previous classes are kept.
    pub fn load_classes(&mut self) -> bool {
        let loaded = Classes::load(&self.config, self.server);
        let errors = loaded
            .as_ref()
            .map_or_else(std::slice::from_ref, |c| &c.errors);
        let broken = errors.iter().filter_map(FileError::class_name).collect();
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        // A failure to read any file or directory can be temporary, for example if the
        // process has no free file descriptor.
        self.unread = match &loaded {
            Ok(classes) => classes.sources.is_empty() && !errors.is_empty(),
            Err(_) => true,
        };
        let message = if self.unread {
            "cannot read the classes, keeping previous ones"
        } else {
            "class left out"
        };
        self.class_errors
            .report(errors, |error| tracing::error!("{message}: {error}"));
        let Ok(Classes {
            usable,
            sources,
            unmounted,
            ..
        }) = loaded
        else {
            return false;
        };
        if self.unread {
            return false;
        }
        self.broken_classes = broken;
        self.unmounted = Arc::new(unmounted);
        // If a class file cannot be read, a name that seems unknown may be the name of that
        // class, so there is no warning.
        if self.class_errors.count() == 0 {
            let known = sources.iter().map(|source| source.name.as_str());
            let warnings = self.config.warn_of_unknown_classes(known);
            self.unknown_classes
                .report(warnings, |warning| tracing::warn!("{warning}"));
        }
        let names: Vec<String> = usable.iter().map(|class| class.name.to_string()).collect();
        let names = names.join(", ");
        if self.class_names.as_ref() != Some(&names) {
            if sources.is_empty() {
                let directories = self
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

    /// Scans the devices once, and calls `make` with the result. Both run in a separate
    /// thread, because a driver may block reads of its files, and the thread of the server
    /// must not block.
    pub async fn scan<T: Send + 'static>(
        &mut self,
        make: impl FnOnce(HostScan<'_>) -> (T, Vec<String>) + Send + 'static,
    ) -> ScanOutcome<T> {
        self.scans.begin();
        let result = self.scan_once(make).await;
        let duration = self.scans.end();
        ScanOutcome { result, duration }
    }

    /// Does the work of [`HostWatcher::scan`] without measuring the time. Returns `None` if
    /// the scan failed, and logs the reason.
    async fn scan_once<T: Send + 'static>(
        &mut self,
        make: impl FnOnce(HostScan<'_>) -> (T, Vec<String>) + Send + 'static,
    ) -> Option<T> {
        let classes = Arc::clone(&self.classes);
        let root = self.config.host_root.clone();
        let mut memory = std::mem::replace(&mut self.memory, ScanMemory::of_host(&root));
        memory.unmounted = Arc::clone(&self.unmounted);
        memory.notifier = Some(self.program.clone());
        // The DRA driver holds the locks of divisible devices during a scan. A program that ended
        // later could overwrite the facts that the making of a part has changed.
        memory.waits_for_facts = self.server == Server::Dra;
        let scanning = tokio::task::spawn_blocking(move || {
            let made = match RealHost::open(&root) {
                Ok(host) => {
                    let scan = scan_host(&classes, &host, &mut memory, Instant::now());
                    let errors = scan.class_errors.iter();
                    let errors: Vec<String> = errors.map(|error| error.message.clone()).collect();
                    Ok((make(scan), errors))
                }
                Err(error) => Err(format!(
                    "cannot open host root {}, keeping previous scan results: {error}",
                    root.display()
                )),
            };
            (made, memory)
        });
        let (made, memory) = match wait_for_scan(scanning).await {
            Ok(scanned) => scanned,
            Err(error) => {
                tracing::error!("device scan failed, keeping previous results: {error}");
                return None;
            }
        };
        self.memory = memory;
        let (made, warnings) = match made {
            Ok(((made, warnings), errors)) => {
                self.scan_errors
                    .report(errors, |error| tracing::error!("class left out: {error}"));
                (Some(made), warnings)
            }
            Err(warning) => (None, vec![warning]),
        };
        self.warnings
            .report(warnings, |warning| tracing::warn!("{warning}"));
        made
    }
}

/// Waits until a device no longer answers, answers again, or is named in the kernel's log.
async fn wait_for_fault(
    memory: &mut ScanMemory,
    root: &Path,
    looking: &mut Option<JoinHandle<bool>>,
) {
    let checks = memory.byte_checks();
    if checks.is_empty() && !memory.reads_kernel_log() {
        std::future::pending::<()>().await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        if memory.has_news() {
            return;
        }
        if checks.is_empty() {
            continue;
        }
        // A read of a device that is lost can hang. While it does, no other one begins, and
        // the log is looked at again by the next call.
        let look = looking.get_or_insert_with(|| {
            let (checks, root) = (Arc::clone(&checks), root.to_owned());
            tokio::task::spawn_blocking(move || have_changed(&checks, &root))
        });
        let changed = look.await;
        *looking = None;
        if changed.unwrap_or(false) {
            return;
        }
    }
}

impl Events {
    fn new(class_files: &[PathBuf]) -> Self {
        let (device, devices) = Notifier::new();
        let (file, files) = Notifier::new();
        let class_files = class_files.iter().cloned().collect();
        Events {
            _classes: WatchTask::directories(&class_files, Interest::Contents, file),
            _uevents: WatchTask::uevents(device.clone()),
            device,
            devices,
            files,
            watched: BTreeSet::new(),
            watching: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CLASS: &str = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                         discover = [{ path = '/sys/x{n:number}' }]\n\
                         [device]\nid = 'x-{n}'\nhealth = [\n\
                         { file = '/sys/x{n}/config', not_leading_bytes = 'ffffffff', steady_for = 2 },\n\
                         { kernel_log = 'x{n}: error ', codes = [79] },\n]\n";

    /// Scans whenever the watcher says so, until the health of the only device is `healthy`.
    async fn wait_until(watcher: &mut HostWatcher, healthy: bool) -> Duration {
        let (start, (_reload, mut reloads)) = (Instant::now(), Notifier::new());
        loop {
            // Without events the next scan would be in an hour.
            let period = Duration::from_secs(3600);
            watcher.wait(period, None, &mut reloads).await;
            let scanned = watcher.scan(|judged| {
                let device = &judged.classes[0].inventory.devices[0];
                (device.health.is_healthy(), Vec::new())
            });
            if scanned.await.result == Some(healthy) {
                return start.elapsed();
            }
        }
    }

    #[tokio::test]
    async fn a_device_that_no_longer_answers_is_found_within_five_seconds() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for below in ["sys/x0", "classes", "dev"] {
            fs::create_dir_all(root.join(below)).unwrap();
        }
        let config_space = root.join("sys/x0/config");
        fs::write(&config_space, b"\x86\x80\x01\x00").unwrap();
        fs::write(root.join("dev/kmsg"), "").unwrap();
        fs::write(root.join("classes/x.toml"), CLASS).unwrap();
        let mut config = Config::parse(Path::new("config.toml"), "").unwrap();
        config.host_root = root.to_owned();
        config.classes = vec![root.join("classes")];
        let mut watcher = HostWatcher::new(config, Server::Plugin);
        let scanned = watcher.scan(|judged| (judged.classes[0].inventory.clone(), Vec::new()));
        let inventory = scanned.await.result.unwrap();
        assert!(inventory.devices[0].health.is_healthy(), "{inventory:?}");

        fs::write(&config_space, [0xff; 4]).unwrap();
        let took = wait_until(&mut watcher, false).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
        fs::write(&config_space, b"\x86\x80\x01\x00").unwrap();
        let took = wait_until(&mut watcher, true).await;
        assert!(took < Duration::from_secs(5), "{took:?}");

        // A file in place of the log has all new records in one.
        let line = "4,1,5,-;x0: error 79, off the bus\n";
        fs::write(root.join("dev/kmsg"), line).unwrap();
        let took = wait_until(&mut watcher, false).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

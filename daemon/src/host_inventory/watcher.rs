//! Scans the host again whenever devices or class files may have changed.

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
use tracing::{Instrument, Span};

use crate::host_inventory::classes::UnmountedClasses;
use crate::host_inventory::dir_watch::WatchedEvents;
use crate::host_inventory::hotplug::{self, WatchTask};
use crate::host_inventory::response_check::has_changed_response;
use crate::host_inventory::slow_scan::wait_for_scan;
use crate::host_inventory::{
    Classes, FaultLog, HostScan, Notifications, Notifier, ScanProgress, ScanState, scan_host,
};

/// The delay between the first event and the scan. Events that arrive during the delay need no
/// further scan.
const EVENT_DELAY: Duration = Duration::from_millis(10);

/// The minimum time between two scans, however many events arrive.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(50);

/// The time between two polls of the devices for a response, and between two reads of the kernel's
/// log.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The work that is due after a change on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueWork {
    /// Scan the host, because a device may have changed, or because the scan interval has passed.
    Scan,
    /// Read the class files and scan the host, because a class may have changed.
    LoadClasses,
}

/// The result and the duration of one scan.
#[derive(Debug)]
pub struct ScanOutcome<T> {
    /// The value that the function `convert` of the caller made from the scan. `None` means that
    /// the scan failed. The reason was logged.
    pub result: Option<T>,
    pub duration: Duration,
}

/// Scans this host repeatedly. Keeps the classes, and the state that one scan passes to the next
/// one.
#[derive(Debug)]
pub struct HostWatcher {
    config: Config,
    server: Server,
    scan_state: ScanState,
    classes: Arc<Vec<DeviceClass>>,
    class_files: Vec<ClassSource>,
    /// Whether no class file could be read when the class files were last loaded.
    are_all_files_unreadable: bool,
    /// The watcher of devices and class files. It is `None` until `wait_for_change` is called for
    /// the first time.
    change_watcher: Option<ChangeWatcher>,
    /// The thread that polls whether the devices answer. A driver may block this thread.
    poll_thread: Option<JoinHandle<bool>>,
    /// Notifies this watcher when a driver's program has ended, so that a scan evaluates its
    /// result.
    program_notifier: Notifier,
    program_notifications: Notifications,
    scan_progress: ScanProgress,
    warnings: FaultLog,
    class_errors: FaultLog,
    /// The names of the classes whose files cannot be used.
    broken_classes: BTreeSet<String>,
    /// The classes that need a host path, although it is not mounted in this container. Each has
    /// the error message.
    unmounted_classes: Arc<UnmountedClasses>,
    /// The configuration errors of classes that the last scan found.
    scan_errors: FaultLog,
    unknown_classes: FaultLog,
    logged_class_names: Option<String>,
}

/// Watches devices and class files for changes. Owns the tasks that send notifications of changes,
/// and receives these notifications.
#[derive(Debug)]
struct ChangeWatcher {
    device_notifier: Notifier,
    device_notifications: Notifications,
    class_file_notifications: Notifications,
    watched_directories: BTreeSet<PathBuf>,
    directory_watch: Option<WatchTask>,
    /// The watch of udev's database. It is `None` if no class reads this database.
    udev_watch: Option<WatchTask>,
    _class_file_watch: WatchTask,
    _uevent_watch: WatchTask,
}

impl HostWatcher {
    /// Creates a watcher for the classes that `server` offers to the kubelet. Loads the class
    /// files.
    pub fn new(config: Config, server: Server) -> Self {
        let (program_notifier, program_notifications) = Notifier::new();
        let mut watcher = HostWatcher {
            scan_state: ScanState::for_host(&config.host_root),
            program_notifier,
            program_notifications,
            config,
            server,
            classes: Arc::default(),
            class_files: Vec::new(),
            are_all_files_unreadable: false,
            change_watcher: None,
            poll_thread: None,
            scan_progress: ScanProgress::default(),
            warnings: FaultLog::default(),
            class_errors: FaultLog::default(),
            broken_classes: BTreeSet::new(),
            unmounted_classes: Arc::default(),
            scan_errors: FaultLog::default(),
            unknown_classes: FaultLog::default(),
            logged_class_names: None,
        };
        watcher.load_classes();
        watcher
    }

    /// Returns the classes that were loaded last.
    pub fn classes(&self) -> &[DeviceClass] {
        &self.classes
    }

    /// Returns the number of errors that prevent devices from being offered. They are class files
    /// that cannot be used, and configuration errors that the last scan found.
    pub fn class_errors(&self) -> usize {
        self.class_errors.count() + self.scan_errors.count()
    }

    /// Returns the names of the classes whose files cannot be used, although their devices may
    /// still exist. Returns `None` if no class file could be read. Any class may then be affected.
    pub fn broken_classes(&self) -> Option<&BTreeSet<String>> {
        (!self.are_all_files_unreadable).then_some(&self.broken_classes)
    }

    pub fn scan_progress(&self) -> ScanProgress {
        self.scan_progress.clone()
    }

    /// Waits until the host must be scanned again, and returns the work that is due. The wait ends
    /// after `period`, after an event that may concern a device or a file in `directory`, after a
    /// change of a class file, and after one of the `reload_notifications`.
    pub async fn wait_for_change(
        &mut self,
        period: Duration,
        directory: Option<PathBuf>,
        reload_notifications: &mut Notifications,
    ) -> DueWork {
        if self.change_watcher.is_some() {
            tokio::time::sleep(MIN_SCAN_INTERVAL).await;
        }
        let mut watched_directories =
            hotplug::list_watched_directories(&self.classes, &self.config.host_root);
        watched_directories.extend(directory);
        let class_files = &self.config.classes;
        let change_watcher = self
            .change_watcher
            .get_or_insert_with(|| ChangeWatcher::new(class_files));
        if watched_directories != change_watcher.watched_directories {
            let notifier = change_watcher.device_notifier.clone();
            change_watcher.directory_watch = Some(WatchTask::watch_directories(
                &watched_directories,
                WatchedEvents::Entries,
                notifier,
            ));
            change_watcher.watched_directories = watched_directories;
        }
        if !hotplug::reads_udev_database(&self.classes) {
            change_watcher.udev_watch = None;
        } else if change_watcher.udev_watch.is_none() {
            let notifier = change_watcher.device_notifier.clone();
            let host_root = &self.config.host_root;
            change_watcher.udev_watch = Some(WatchTask::watch_udev_database(host_root, notifier));
        }
        let due_time = self.scan_state.next_due_time();
        let delay = due_time.map(|due_time| due_time.saturating_duration_since(Instant::now()));
        let period = delay.map_or(period, |delay| period.min(delay));
        let (scan_state, host_root) = (&mut self.scan_state, &self.config.host_root);
        let poll_thread = &mut self.poll_thread;
        let task = tokio::select! {
            () = tokio::time::sleep(period) => DueWork::Scan,
            () = wait_for_health_change(scan_state, host_root, poll_thread) => DueWork::Scan,
            () = change_watcher.device_notifications.wait() => DueWork::Scan,
            () = self.program_notifications.wait() => DueWork::Scan,
            () = change_watcher.class_file_notifications.wait() => DueWork::LoadClasses,
            () = reload_notifications.wait() => DueWork::LoadClasses,
        };
        // One scan should cover several events: a driver creates several device nodes in a row, and
        // an editor writes a file in several steps.
        tokio::time::sleep(EVENT_DELAY).await;
        change_watcher.device_notifications.clear();
        match task {
            DueWork::Scan if !self.are_all_files_unreadable => DueWork::Scan,
            _ => {
                change_watcher.class_file_notifications.clear();
                DueWork::LoadClasses
            }
        }
    }

    /// Loads the class files and logs new errors. Returns whether a class file has changed. If no
    /// class file can be read, the previous classes are kept.
    pub fn load_classes(&mut self) -> bool {
        let load_result = Classes::load(&self.config, self.server);
        let errors = load_result
            .as_ref()
            .map_or_else(std::slice::from_ref, |classes| &classes.errors);
        let broken_classes = errors.iter().filter_map(FileError::class_name).collect();
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        // If no class file can be read, the previous classes are kept. The failure may be
        // temporary, for example if the process has no free file descriptor.
        self.are_all_files_unreadable = match &load_result {
            Ok(classes) => classes.sources.is_empty() && !errors.is_empty(),
            Err(_) => true,
        };
        let message = if self.are_all_files_unreadable {
            "cannot read the classes, keeping previous ones"
        } else {
            "class left out"
        };
        self.class_errors
            .report_faults(errors, |error| tracing::error!("{message}: {error}"));
        let Ok(Classes {
            usable_classes,
            sources,
            unmounted_classes,
            ..
        }) = load_result
        else {
            return false;
        };
        if self.are_all_files_unreadable {
            return false;
        }
        self.broken_classes = broken_classes;
        self.unmounted_classes = Arc::new(unmounted_classes);
        // If a class file cannot be read, there is no warning about unknown classes in the
        // configuration, because such a class may be in that file.
        if self.class_errors.count() == 0 {
            let class_names = sources.iter().map(|source| source.name.as_str());
            let warnings = self.config.describe_unknown_classes(class_names);
            self.unknown_classes
                .report_faults(warnings, |warning| tracing::warn!("{warning}"));
        }
        let names: Vec<String> = usable_classes
            .iter()
            .map(|class| class.name.to_string())
            .collect();
        let names = names.join(", ");
        if self.logged_class_names.as_ref() != Some(&names) {
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
            self.logged_class_names = Some(names);
        }
        self.classes = Arc::new(usable_classes);
        let has_changed = self.class_files != sources;
        self.class_files = sources;
        has_changed
    }

    /// Scans the host once, and calls `convert` with the scan. Both run in a separate thread: a
    /// driver may block the reads of its files, and the threads of the async runtime must not
    /// block.
    pub async fn scan<T: Send + 'static>(
        &mut self,
        convert: impl FnOnce(HostScan<'_>) -> (T, Vec<String>) + Send + 'static,
    ) -> ScanOutcome<T> {
        self.scan_progress.begin();
        let span = tracing::error_span!("scan", classes = self.classes.len());
        let result = self.scan_without_timing(convert).instrument(span).await;
        let duration = self.scan_progress.end();
        ScanOutcome { result, duration }
    }

    /// Scans the host like [`HostWatcher::scan`], but does not measure the time. If the scan fails,
    /// logs the reason and returns `None`.
    async fn scan_without_timing<T: Send + 'static>(
        &mut self,
        convert: impl FnOnce(HostScan<'_>) -> (T, Vec<String>) + Send + 'static,
    ) -> Option<T> {
        let classes = Arc::clone(&self.classes);
        let host_root = self.config.host_root.clone();
        let mut scan_state =
            std::mem::replace(&mut self.scan_state, ScanState::for_host(&host_root));
        scan_state.unmounted_classes = Arc::clone(&self.unmounted_classes);
        scan_state.notifier = Some(self.program_notifier.clone());
        // The DRA driver holds the locks of divisible devices only during a scan. A program that
        // ended after the scan could overwrite facts that change when a partition is created.
        scan_state.waits_for_driver_properties = self.server == Server::Dra;
        let span = Span::current();
        let scan_thread = tokio::task::spawn_blocking(move || {
            let _span = span.entered();
            let scan_result = match RealHost::open(&host_root) {
                Ok(host) => {
                    let scan = scan_host(&classes, &host, &mut scan_state, Instant::now());
                    let errors = scan.class_errors.iter();
                    let errors: Vec<String> = errors.map(|error| error.message.clone()).collect();
                    Ok((convert(scan), errors))
                }
                Err(error) => Err(format!(
                    "cannot open host root {}, keeping previous scan results: {error}",
                    host_root.display()
                )),
            };
            (scan_result, scan_state)
        });
        let (scan_result, scan_state) = match wait_for_scan(scan_thread).await {
            Ok(result_and_memory) => result_and_memory,
            Err(error) => {
                tracing::error!("device scan failed, keeping previous results: {error}");
                return None;
            }
        };
        self.scan_state = scan_state;
        let (value, warnings) = match scan_result {
            Ok(((value, warnings), errors)) => {
                self.scan_errors
                    .report_faults(errors, |error| tracing::error!("class left out: {error}"));
                (Some(value), warnings)
            }
            Err(warning) => (None, vec![warning]),
        };
        self.warnings
            .report_faults(warnings, |warning| tracing::warn!("{warning}"));
        value
    }
}

/// Waits until a device stops answering, until it answers again, or until a new record of the
/// kernel's log concerns a device.
async fn wait_for_health_change(
    scan_state: &mut ScanState,
    host_root: &Path,
    poll_thread: &mut Option<JoinHandle<bool>>,
) {
    let checks = scan_state.response_checks();
    if checks.is_empty() && !scan_state.reads_kernel_log() {
        std::future::pending::<()>().await;
    }
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        if scan_state.poll_kernel_log() {
            return;
        }
        if checks.is_empty() {
            continue;
        }
        // The read of a lost device's file can block. While it is blocked, no other read starts.
        // The kernel's log is then not read either, until the caller waits again.
        let thread = poll_thread.get_or_insert_with(|| {
            let (checks, host_root) = (Arc::clone(&checks), host_root.to_owned());
            tokio::task::spawn_blocking(move || has_changed_response(&checks, &host_root))
        });
        let has_changed = thread.await;
        *poll_thread = None;
        if has_changed.unwrap_or(false) {
            return;
        }
    }
}

impl ChangeWatcher {
    fn new(class_files: &[PathBuf]) -> Self {
        let (device_notifier, device_notifications) = Notifier::new();
        let (file_notifier, class_file_notifications) = Notifier::new();
        let class_files = class_files.iter().cloned().collect();
        ChangeWatcher {
            _class_file_watch: WatchTask::watch_directories(
                &class_files,
                WatchedEvents::Contents,
                file_notifier,
            ),
            _uevent_watch: WatchTask::receive_uevents(device_notifier.clone()),
            device_notifier,
            device_notifications,
            class_file_notifications,
            watched_directories: BTreeSet::new(),
            directory_watch: None,
            udev_watch: None,
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
            watcher.wait_for_change(period, None, &mut reloads).await;
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

    #[tokio::test]
    async fn a_device_is_found_as_soon_as_udev_has_written_its_file() {
        const CLASS: &str = "version = 1\nresource = 'x.com/x'\nrequest = { env = 'X' }\n\
                             [[discover]]\npath = '/sys/x{n:number}'\n\
                             attributes = [{ name = 'able', file = '/run/udev/data/c81:{n}', \
                             regex = '(?m)^E:ABLE=(.*)$', default = 'unknown' }]\n\
                             require = [{ value = '{able}', equals = 'yes' }]\n\
                             [device]\nid = 'x-{n}'\n";
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for below in ["sys/x0", "classes", "run/udev/data"] {
            fs::create_dir_all(root.join(below)).unwrap();
        }
        fs::write(root.join("classes/x.toml"), CLASS).unwrap();
        let mut config = Config::parse(Path::new("config.toml"), "").unwrap();
        config.host_root = root.to_owned();
        config.classes = vec![root.join("classes")];
        let mut watcher = HostWatcher::new(config, Server::Plugin);
        let (_reload, mut reloads) = Notifier::new();
        let database = root.join("run/udev/data");
        let write_later = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            // udev writes another file, and renames it.
            fs::write(database.join(".#c81:0x"), "V:1\nE:ABLE=yes\n").unwrap();
            fs::rename(database.join(".#c81:0x"), database.join("c81:0")).unwrap();
        };
        let find = async {
            loop {
                let count =
                    watcher.scan(|scan| (scan.classes[0].inventory.devices.len(), Vec::new()));
                if count.await.result == Some(1) {
                    return;
                }
                let period = Duration::from_secs(3600);
                watcher.wait_for_change(period, None, &mut reloads).await;
            }
        };
        let found = async { tokio::join!(write_later, find) };
        tokio::time::timeout(Duration::from_secs(5), found)
            .await
            .unwrap();
    }
}

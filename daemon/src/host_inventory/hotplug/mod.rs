//! Sends a notification when a device may have appeared or disappeared. It watches directories with
//! device nodes and the database of udev, and receives the kernel's uevents. A notification only
//! starts a scan. If a notification is lost, the change is found by the next periodic scan.

mod message;
mod uevent;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device_class::DeviceClass;
use device_class::pattern::PathPattern;
use device_class::template::Attributes;
use tokio::task::JoinHandle;

use crate::host_inventory::dir_watch::{DirectoryChange, DirectoryWatch, WatchedEvents};
use crate::host_inventory::notify::Notifier;
use uevent::Uevents;

/// The time before a failed watch is started again. Until then the periodic scans find changes.
const RETRY_DELAY: Duration = Duration::from_secs(300);

/// The directory in which udev keeps a file for each device (systemd, src/libsystemd/sd-device,
/// device_update_db).
const UDEV_DATABASE_DIR: &str = "/run/udev/data";

/// A task that watches for changes and sends notifications. If the watch fails, the task logs the
/// error and starts the watch again after five minutes. Dropping this value ends the task.
#[derive(Debug)]
pub(crate) struct WatchTask(JoinHandle<()>);

impl WatchTask {
    pub(crate) fn watch_directories(
        directories: &BTreeSet<PathBuf>,
        events: WatchedEvents,
        notifier: Notifier,
    ) -> Self {
        let directories = directories.iter().cloned().collect();
        WatchTask(tokio::spawn(watch_directories(
            directories,
            events,
            move |_| notifier.notify(),
        )))
    }

    /// Starts a task that notifies `notifier` when udev has written the file of a device node, or
    /// removed it. udev writes it after the kernel's uevent, so the scan that the uevent starts may
    /// be too early to see it.
    pub(crate) fn watch_udev_database(host_root: &Path, notifier: Notifier) -> Self {
        let directory = host_root.join(&UDEV_DATABASE_DIR[1..]);
        WatchTask(tokio::spawn(watch_directories(
            vec![directory],
            WatchedEvents::Entries,
            move |change| {
                if may_concern_device_node(change) {
                    notifier.notify();
                }
            },
        )))
    }

    /// Starts a task that notifies `notifier` of the kernel's uevents that may concern an
    /// accelerator.
    pub(crate) fn receive_uevents(notifier: Notifier) -> Self {
        WatchTask(tokio::spawn(async move {
            loop {
                let result = match Uevents::new() {
                    Ok(uevents) => uevents.run(&notifier).await,
                    Err(error) => Err(error),
                };
                pause_after_error("cannot receive uevents", result).await;
            }
        }))
    }
}

/// Watches directories and calls `on_change` for each change. If the watch fails, logs the error
/// and starts the watch again after five minutes. The future never completes. Dropping it ends the
/// watch.
pub async fn watch_directories(
    directories: Vec<PathBuf>,
    events: WatchedEvents,
    mut on_change: impl FnMut(DirectoryChange<'_>),
) {
    let names: Vec<_> = directories
        .iter()
        .map(|path| path.to_string_lossy())
        .collect();
    let message = format!("cannot watch {}", names.join(", "));
    loop {
        let result = match DirectoryWatch::new(directories.clone(), events) {
            Ok(watch) => watch.run(&mut on_change).await,
            Err(error) => Err(error),
        };
        pause_after_error(&message, result).await;
    }
}

/// Logs the error that ended a watch, and waits until the watch may be started again.
async fn pause_after_error(message: &str, watch_result: io::Result<()>) {
    if let Err(error) = watch_result {
        tracing::warn!("{message}, polling instead: {error}");
    }
    tokio::time::sleep(RETRY_DELAY).await;
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the directories in which the files of devices can appear. Directories of /proc and /sys
/// are left out, because inotify does not report the kernel's changes there (inotify(7)).
pub(crate) fn list_watched_directories(
    classes: &[DeviceClass],
    host_root: &Path,
) -> BTreeSet<PathBuf> {
    let sources = classes.iter().flat_map(|class| &class.spec.discover);
    let paths = sources
        .filter_map(|source| source.path.as_ref())
        .filter_map(find_fixed_parent);
    let watchable_paths =
        paths.filter(|path| !["proc", "sys"].iter().any(|tree| path.starts_with(tree)));
    watchable_paths.map(|path| host_root.join(path)).collect()
}

/// Returns whether a class reads files of udev's database to find its devices.
pub(crate) fn reads_udev_database(classes: &[DeviceClass]) -> bool {
    let mut specs = classes.iter().map(|class| &class.spec);
    specs.any(|spec| spec.list_read_paths().contains(UDEV_DATABASE_DIR))
}

/// Returns whether a change in udev's database may concern a device node. The files of nodes are
/// `cMAJOR:MINOR` and `bMAJOR:MINOR`. Each container that starts changes the files of network
/// interfaces, `nINDEX`. While udev writes a file, its name begins with a dot.
fn may_concern_device_node(change: DirectoryChange<'_>) -> bool {
    match change {
        DirectoryChange::Entry(name) => matches!(name.as_encoded_bytes(), [b'c' | b'b', ..]),
        DirectoryChange::Unknown => true,
    }
}

/// Returns the longest fixed directory of a pattern, relative to the root directory. It is the
/// parent of the first component with a placeholder. The names below it depend on attributes.
fn find_fixed_parent(pattern: &PathPattern) -> Option<PathBuf> {
    let no_attributes = Attributes::new();
    let names = pattern
        .components()
        .iter()
        .map(|component| component.fixed_name(&no_attributes));
    let fixed_path: PathBuf = names.clone().map_while(|name| name).collect();
    if fixed_path.components().count() == pattern.components().len() {
        fixed_path.parent().map(Path::to_owned)
    } else {
        Some(fixed_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_device_nodes_in_the_database_of_udev_count() {
        for (name, wanted) in [
            ("c81:0", true),
            ("b8:16", true),
            ("n12", false),
            ("+usb:1-2", false),
            (".#c81:0f3a1", false),
        ] {
            let change = DirectoryChange::Entry(name.as_ref());
            assert_eq!(may_concern_device_node(change), wanted, "{name}");
        }
        assert!(may_concern_device_node(DirectoryChange::Unknown));
    }

    #[test]
    fn the_part_of_a_pattern_that_is_one_directory_is_watched() {
        for (pattern, wanted) in [
            ("/dev/apex_{index:number}", "dev"),
            ("/dev/dri/renderD*", "dev/dri"),
            ("/dev/bus/usb/*/*", "dev/bus/usb"),
            ("/dev/kfd", "dev"),
            ("/*", ""),
        ] {
            let pattern = PathPattern::try_from(pattern.to_owned()).unwrap();
            assert_eq!(
                find_fixed_parent(&pattern),
                Some(wanted.into()),
                "{pattern}"
            );
        }
    }
}

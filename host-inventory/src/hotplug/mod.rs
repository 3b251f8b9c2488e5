//! Sends a notification when a device may have appeared or disappeared. The sources are
//! directories with device nodes, and the kernel's uevents. A notification only starts a scan, so
//! that a lost one merely delays the result until the next periodic scan.

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

use crate::dir_watch::{DirWatch, DirectoryChange, WatchedEvents};
use crate::notify::Notifier;
use uevent::Uevents;

/// The delay before a failed watch is started again.
const RETRY_DELAY: Duration = Duration::from_secs(300);

/// A task that sends notifications of changes. Dropping this value ends the task. If its watch
/// fails, the task logs the error and starts the watch again after five minutes.
#[derive(Debug)]
pub(crate) struct WatchTask(JoinHandle<()>);

impl WatchTask {
    /// Starts a task that watches directories.
    pub(crate) fn watch_directories(
        directories: &BTreeSet<PathBuf>,
        interest: WatchedEvents,
        notifier: Notifier,
    ) -> Self {
        let directories = directories.iter().cloned().collect();
        WatchTask(tokio::spawn(watch_directories(
            directories,
            interest,
            move |_| notifier.notify(),
        )))
    }

    /// Starts a task that receives the kernel's uevents.
    pub(crate) fn receive_uevents(notifier: Notifier) -> Self {
        WatchTask(tokio::spawn(async move {
            loop {
                let ended = match Uevents::new() {
                    Ok(uevents) => uevents.run(&notifier).await,
                    Err(error) => Err(error),
                };
                pause_after_error("cannot receive uevents", ended).await;
            }
        }))
    }
}

/// Watches directories and calls `on` for each change. The future never completes; dropping it
/// ends the watch. If the watch fails, the error is logged, and the watch starts again after five
/// minutes.
pub async fn watch_directories(
    directories: Vec<PathBuf>,
    interest: WatchedEvents,
    mut on: impl FnMut(DirectoryChange<'_>),
) {
    let names: Vec<_> = directories
        .iter()
        .map(|path| path.to_string_lossy())
        .collect();
    let message = format!("cannot watch {}", names.join(", "));
    loop {
        let ended = match DirWatch::new(directories.clone(), interest) {
            Ok(watch) => watch.run(&mut on).await,
            Err(error) => Err(error),
        };
        pause_after_error(&message, ended).await;
    }
}

/// Logs the error that ended a watch, and waits before the next attempt.
async fn pause_after_error(message: &str, ended: io::Result<()>) {
    if let Err(error) = ended {
        tracing::warn!("{message}, polling instead: {error}");
    }
    tokio::time::sleep(RETRY_DELAY).await;
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the directories in which device nodes or files of the classes can appear. Directories
/// of /proc and /sys are omitted, because inotify does not report the kernel's changes there
/// (inotify(7)).
pub(crate) fn watched_directories(classes: &[DeviceClass], host_root: &Path) -> BTreeSet<PathBuf> {
    let sources = classes.iter().flat_map(|class| &class.spec.discover);
    let paths = sources
        .filter_map(|source| source.path.as_ref())
        .filter_map(fixed_parent);
    let useful = paths.filter(|path| !["proc", "sys"].iter().any(|tree| path.starts_with(tree)));
    useful.map(|path| host_root.join(path)).collect()
}

/// Returns the directory in which the first component with a placeholder is looked up, relative to
/// the root.
fn fixed_parent(pattern: &PathPattern) -> Option<PathBuf> {
    let known = Attributes::new();
    let names = pattern
        .components()
        .iter()
        .map(|component| component.fixed_name(&known));
    let fixed: PathBuf = names.clone().map_while(|name| name).collect();
    if fixed.components().count() == pattern.components().len() {
        fixed.parent().map(Path::to_owned)
    } else {
        Some(fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(fixed_parent(&pattern), Some(wanted.into()), "{pattern}");
        }
    }
}

//! Notifies of devices that appear or disappear. The sources are the directories with device
//! nodes, and the kernel's uevents. A notification only triggers a scan. If a notification
//! is missed, the periodic scan finds the change later.

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

use crate::dir_watch::{DirWatch, Interest, Notice};
use crate::notify::Notifier;
use uevent::Uevents;

/// The time after which a failed watch is started again.
const RETRY: Duration = Duration::from_secs(300);

/// A task that notifies of changes. The task ends when this value is dropped. If its watch
/// fails, the task logs the error and starts the watch again after five minutes.
#[derive(Debug)]
pub(crate) struct WatchTask(JoinHandle<()>);

impl WatchTask {
    pub(crate) fn directories(
        directories: &BTreeSet<PathBuf>,
        interest: Interest,
        notifier: Notifier,
    ) -> Self {
        let directories = directories.iter().cloned().collect();
        WatchTask(tokio::spawn(watch_directories(
            directories,
            interest,
            move |_| notifier.notify(),
        )))
    }

    /// Starts a task that notifies of the kernel's uevents.
    pub(crate) fn uevents(notifier: Notifier) -> Self {
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

/// Watches directories and calls `on` with each change. The future never completes; the watch
/// ends when the future is dropped. If the watch fails, the error is logged, and the watch
/// starts again after five minutes.
pub async fn watch_directories(
    directories: Vec<PathBuf>,
    interest: Interest,
    mut on: impl FnMut(Notice<'_>),
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
    tokio::time::sleep(RETRY).await;
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the directories in which device nodes or files of the classes can appear. /proc
/// and /sys are left out, because inotify does not report changes by the kernel there
/// (inotify(7)).
pub(crate) fn watched_directories(classes: &[DeviceClass], host_root: &Path) -> BTreeSet<PathBuf> {
    let sources = classes.iter().flat_map(|class| &class.spec.discover);
    let paths = sources
        .filter_map(|source| source.path.as_ref())
        .filter_map(fixed_part);
    let useful = paths.filter(|path| !["proc", "sys"].iter().any(|tree| path.starts_with(tree)));
    useful.map(|path| host_root.join(path)).collect()
}

/// Returns the directory in which the first variable component of a pattern is looked up,
/// relative to the root.
fn fixed_part(pattern: &PathPattern) -> Option<PathBuf> {
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
            assert_eq!(fixed_part(&pattern), Some(wanted.into()), "{pattern}");
        }
    }
}

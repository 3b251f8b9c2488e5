//! Notification of devices that appear or disappear: by the directories of their nodes,
//! and by uevents. A notification only triggers a scan; if one is missed, the scan is
//! delayed until the next rescan.

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

/// The time after which a failed watch is tried again.
const RETRY: Duration = Duration::from_secs(300);

/// A task that notifies of changes, and ends when this is dropped. A watch that
/// fails is logged and tried again later.
#[derive(Debug)]
pub(crate) struct Watching(JoinHandle<()>);

impl Watching {
    pub(crate) fn directories(
        directories: &BTreeSet<PathBuf>,
        interest: Interest,
        notifier: Notifier,
    ) -> Self {
        let directories = directories.iter().cloned().collect();
        Watching(tokio::spawn(watch_directories(
            directories,
            interest,
            move |_| notifier.notify(),
        )))
    }

    /// Listens to the kernel.
    pub(crate) fn uevents(notifier: Notifier) -> Self {
        Watching(tokio::spawn(async move {
            loop {
                let ended = match Uevents::new() {
                    Ok(uevents) => uevents.run(&notifier).await,
                    Err(error) => Err(error),
                };
                pause("cannot receive uevents", ended).await;
            }
        }))
    }
}

/// Passes what happens in directories to `on` until it is dropped. A watch that fails is
/// logged and tried again later.
pub async fn watch_directories(
    directories: Vec<PathBuf>,
    interest: Interest,
    mut on: impl FnMut(Notice<'_>),
) {
    let names: Vec<_> = directories
        .iter()
        .map(|path| path.to_string_lossy())
        .collect();
    let what = format!("cannot watch {}", names.join(", "));
    loop {
        let ended = match DirWatch::new(directories.clone(), interest) {
            Ok(watch) => watch.run(&mut on).await,
            Err(error) => Err(error),
        };
        pause(&what, ended).await;
    }
}

/// Logs why a watch ended, and waits before the next attempt.
async fn pause(what: &str, ended: io::Result<()>) {
    if let Err(error) = ended {
        tracing::warn!("{what}, polling instead: {error}");
    }
    tokio::time::sleep(RETRY).await;
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The directories in which candidates of the classes appear. /proc and /sys
/// are not among them: inotify does not report the kernel's changes there
/// (inotify(7)).
pub(crate) fn directories(classes: &[DeviceClass], host_root: &Path) -> BTreeSet<PathBuf> {
    let sources = classes.iter().flat_map(|class| &class.spec.discover);
    let paths = sources
        .filter_map(|source| source.path.as_ref())
        .filter_map(fixed_part);
    let useful = paths.filter(|path| !["proc", "sys"].iter().any(|tree| path.starts_with(tree)));
    useful.map(|path| host_root.join(path)).collect()
}

/// The components of a pattern before the first one that may match several
/// names, relative to the root.
fn fixed_part(pattern: &PathPattern) -> Option<PathBuf> {
    let known = Attributes::new();
    let names = pattern
        .components()
        .iter()
        .map(|component| component.fixed(&known));
    let fixed: PathBuf = names.clone().map_while(|name| name).collect();
    match fixed.components().count() == pattern.components().len() {
        true => fixed.parent().map(Path::to_owned),
        false => Some(fixed),
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

//! Watches directories with inotify for files that are created, renamed or deleted. The watched
//! directories may be created and deleted during the watch.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::unix::AsyncFd;

/// The events that a directory watch reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchedEvents {
    /// The watch reports files and directories that appear in a watched directory or disappear from
    /// it.
    Entries,
    /// In addition to [`WatchedEvents::Entries`], the watch reports files that are closed after a
    /// write. This variant is not for `/dev`, because inotify reports every write to a device
    /// there.
    Contents,
}

/// A change in the watched directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryChange<'a> {
    /// A file or directory with this name has changed in one of the watched directories.
    Entry(&'a OsStr),
    /// An unknown entry may have changed, because a directory is new or inotify has lost events.
    Unknown,
}

/// The inotify events for an entry that appears in a directory or disappears from it.
const ENTRY_EVENTS: AddWatchFlags = CREATION_EVENTS
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM);

const CREATION_EVENTS: AddWatchFlags = AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_MOVED_TO);

/// The inotify events for a watched directory that is itself deleted or renamed.
const SELF_EVENTS: AddWatchFlags = AddWatchFlags::IN_DELETE_SELF.union(AddWatchFlags::IN_MOVE_SELF);

/// An inotify instance that watches directories. A directory may be created later than its watch.
pub(crate) struct DirectoryWatch {
    directories: Vec<PathBuf>,
    events: AddWatchFlags,
    queue: AsyncFd<InotifyQueue>,
    /// The active watches. If a directory does not exist, only its nearest existing ancestor has a
    /// watch.
    watches: HashMap<WatchDescriptor, WatchTarget>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchTarget {
    Directory,
    Ancestor,
}

struct InotifyQueue(Inotify);

impl AsRawFd for InotifyQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl DirectoryWatch {
    /// Starts to watch `directories`. A directory that does not exist yet is watched once it is
    /// created.
    ///
    /// # Errors
    /// Returns an error if a limit of inotify is reached (`/proc/sys/fs/inotify`).
    pub(crate) fn new(
        directories: Vec<PathBuf>,
        watched_events: WatchedEvents,
    ) -> io::Result<Self> {
        let queue = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let events = match watched_events {
            WatchedEvents::Entries => ENTRY_EVENTS,
            WatchedEvents::Contents => ENTRY_EVENTS | AddWatchFlags::IN_CLOSE_WRITE,
        };
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe; `InotifyQueue` owns its descriptor and never changes it"
        )]
        let queue = AsyncFd::new(InotifyQueue(queue))?;
        let mut watch = DirectoryWatch {
            directories,
            events,
            queue,
            watches: HashMap::new(),
        };
        watch.set_watches()?;
        Ok(watch)
    }

    /// Calls `on_change` for each change. The first call gets [`DirectoryChange::Unknown`], because
    /// entries may have changed before the watch started. Returns only if an error ends the watch.
    pub(crate) async fn run(
        mut self,
        mut on_change: impl FnMut(DirectoryChange<'_>),
    ) -> io::Result<()> {
        on_change(DirectoryChange::Unknown);
        loop {
            let mut ready_queue = self.queue.readable().await?;
            let Ok(events) = ready_queue.try_io(|queue| Ok(queue.get_ref().0.read_events()?))
            else {
                continue;
            };
            for event in events? {
                if self.requires_new_watches(&event) {
                    self.set_watches()?;
                    on_change(DirectoryChange::Unknown);
                } else if let Some(name) = &event.name
                    && self.watches.get(&event.wd) == Some(&WatchTarget::Directory)
                {
                    on_change(DirectoryChange::Entry(name));
                }
            }
        }
    }

    /// Returns whether all watches must be set again after an event: a watched directory was
    /// removed, inotify has lost events, or a missing directory or one of its ancestors may have
    /// been created. Other events in ancestors have no effect.
    fn requires_new_watches(&self, event: &InotifyEvent) -> bool {
        if event
            .mask
            .intersects(SELF_EVENTS | AddWatchFlags::IN_Q_OVERFLOW)
        {
            return true;
        }
        let Some(name) = &event.name else {
            return false;
        };
        event.mask.intersects(CREATION_EVENTS)
            && self
                .directories
                .iter()
                .flat_map(|path| path.iter())
                .any(|component| component == name)
    }

    /// Sets a watch on each directory and on its nearest existing ancestor. The watch on the
    /// ancestor reports when a missing directory is created.
    fn set_watches(&mut self) -> io::Result<()> {
        self.watches.clear();
        // Ancestors are watched first. inotify has only one watch for a directory, and the last
        // call determines its events. So if a directory is also an ancestor of another one, the
        // last call must set the larger set of events.
        for ancestor in self
            .directories
            .iter()
            .filter_map(|path| find_existing_ancestor(path))
        {
            if let Some(descriptor) = self.add_watch(ancestor, CREATION_EVENTS)? {
                self.watches.insert(descriptor, WatchTarget::Ancestor);
            }
        }
        for directory in &self.directories {
            if let Some(descriptor) = self.add_watch(directory, self.events)? {
                self.watches.insert(descriptor, WatchTarget::Directory);
            }
        }
        Ok(())
    }

    /// Adds a watch on a directory. Returns `None` if the directory does not exist. The watch on
    /// its ancestor then reports when the directory is created.
    fn add_watch(
        &self,
        directory: &Path,
        mask: AddWatchFlags,
    ) -> io::Result<Option<WatchDescriptor>> {
        let mask = mask | SELF_EVENTS | AddWatchFlags::IN_ONLYDIR;
        match self.queue.get_ref().0.add_watch(directory, mask) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn find_existing_ancestor(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|ancestor| ancestor.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::*;

    async fn wait_for_notice(told: &mut mpsc::UnboundedReceiver<String>, wanted: &str) {
        let until = async { while told.recv().await.as_deref() != Some(wanted) {} };
        let in_time = tokio::time::timeout(Duration::from_secs(5), until).await;
        in_time.expect(wanted);
    }

    #[tokio::test]
    async fn a_directory_is_watched_through_its_end_and_its_return() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("a/b");
        let watch = DirectoryWatch::new(vec![directory.clone()], WatchedEvents::Entries).unwrap();
        let (tell, mut told_of) = mpsc::unbounded_channel();
        let watching = watch.run(|notice| {
            let _ = tell.send(match notice {
                DirectoryChange::Entry(name) => name.to_string_lossy().into_owned(),
                DirectoryChange::Unknown => "anything".to_owned(),
            });
        });
        let test = async {
            wait_for_notice(&mut told_of, "anything").await;
            for _ in 0..3 {
                fs::create_dir_all(&directory).unwrap();
                wait_for_notice(&mut told_of, "anything").await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                fs::write(directory.join("x.sock"), "").unwrap();
                wait_for_notice(&mut told_of, "x.sock").await;
                fs::remove_dir_all(root.path().join("a")).unwrap();
                wait_for_notice(&mut told_of, "anything").await;
            }
        };
        tokio::select! {
            ended = watching => panic!("{ended:?}"),
            () = test => {}
        }
    }
}

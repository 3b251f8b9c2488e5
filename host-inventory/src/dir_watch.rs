//! Watches directories with inotify for files that are created, renamed and deleted. The
//! directories themselves may appear and disappear while they are watched.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::unix::AsyncFd;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Report names that appear or disappear.
    Names,
    /// Report also files that were written. This is not useful for `/dev`, because inotify
    /// reports every write to a device.
    Contents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// The file with this name changed in one of the directories.
    Name(&'a OsStr),
    /// Any file may have changed, because a directory is new or events were lost.
    Anything,
}

/// The events of entries that appear in a directory or disappear from it.
const ENTRIES: AddWatchFlags = APPEARING
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM);

const APPEARING: AddWatchFlags = AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_MOVED_TO);

/// The events of a watched directory that is deleted or renamed itself.
const ITSELF: AddWatchFlags = AddWatchFlags::IN_DELETE_SELF.union(AddWatchFlags::IN_MOVE_SELF);

/// An inotify queue over directories that need not exist yet.
pub(crate) struct DirWatch {
    directories: Vec<PathBuf>,
    entries: AddWatchFlags,
    queue: AsyncFd<Queue>,
    /// The active watches. Each is on one of `directories`, or on an ancestor of a directory
    /// that does not exist yet.
    watches: HashMap<WatchDescriptor, Watched>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Directory,
    Above,
}

struct Queue(Inotify);

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl DirWatch {
    /// Starts to watch `directories`.
    ///
    /// # Errors
    /// Returns an error if a limit of inotify is reached (`/proc/sys/fs/inotify`).
    pub(crate) fn new(directories: Vec<PathBuf>, interest: Interest) -> io::Result<Self> {
        let queue = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let entries = match interest {
            Interest::Names => ENTRIES,
            Interest::Contents => ENTRIES | AddWatchFlags::IN_CLOSE_WRITE,
        };
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe; `Queue` owns its descriptor and never changes it"
        )]
        let queue = AsyncFd::new(Queue(queue))?;
        let mut watch = DirWatch {
            directories,
            entries,
            queue,
            watches: HashMap::new(),
        };
        watch.arm()?;
        Ok(watch)
    }

    /// Waits for events and calls `on` with each. The first call has [`Notice::Anything`],
    /// because files may have changed before the watch started.
    pub(crate) async fn run(mut self, mut on: impl FnMut(Notice<'_>)) -> io::Result<()> {
        on(Notice::Anything);
        loop {
            let mut ready = self.queue.readable().await?;
            let Ok(events) = ready.try_io(|queue| Ok(queue.get_ref().0.read_events()?)) else {
                continue;
            };
            for event in events? {
                if self.is_about_the_watches(&event) {
                    self.arm()?;
                    on(Notice::Anything);
                } else if let Some(name) = &event.name
                    && self.watches.get(&event.wd) == Some(&Watched::Directory)
                {
                    on(Notice::Name(name));
                }
            }
        }
    }

    /// Returns whether the watches have to be set again: a watched directory was removed,
    /// events were lost, or a missing directory or an ancestor of it may have been created.
    /// Other events in ancestors are ignored.
    fn is_about_the_watches(&self, event: &InotifyEvent) -> bool {
        if event.mask.intersects(ITSELF | AddWatchFlags::IN_Q_OVERFLOW) {
            return true;
        }
        let Some(name) = &event.name else {
            return false;
        };
        event.mask.intersects(APPEARING)
            && self
                .directories
                .iter()
                .flat_map(|path| path.iter())
                .any(|part| part == name)
    }

    /// Sets a watch on every directory and on the nearest existing directory above it, where
    /// the creation of a missing directory is reported.
    fn arm(&mut self) -> io::Result<()> {
        self.watches.clear();
        // The ancestors come first. inotify has one watch for each directory, and the last
        // call sets its events. If a directory is also an ancestor of another one, it needs
        // the events of a directory, which are more.
        for above in self
            .directories
            .iter()
            .filter_map(|path| nearest_above(path))
        {
            if let Some(descriptor) = self.add(above, APPEARING)? {
                self.watches.insert(descriptor, Watched::Above);
            }
        }
        for directory in &self.directories {
            if let Some(descriptor) = self.add(directory, self.entries)? {
                self.watches.insert(descriptor, Watched::Directory);
            }
        }
        Ok(())
    }

    /// Adds a watch. Returns `None` if the directory does not exist; the watch on its
    /// ancestor reports its creation.
    fn add(&self, directory: &Path, mask: AddWatchFlags) -> io::Result<Option<WatchDescriptor>> {
        let mask = mask | ITSELF | AddWatchFlags::IN_ONLYDIR;
        match self.queue.get_ref().0.add_watch(directory, mask) {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the nearest existing directory above `path`.
fn nearest_above(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|above| above.is_dir())
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
        let watch = DirWatch::new(vec![directory.clone()], Interest::Names).unwrap();
        let (tell, mut told_of) = mpsc::unbounded_channel();
        let watching = watch.run(|notice| {
            let _ = tell.send(match notice {
                Notice::Name(name) => name.to_string_lossy().into_owned(),
                Notice::Anything => "anything".to_owned(),
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

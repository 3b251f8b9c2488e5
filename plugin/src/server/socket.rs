//! The plugin's Unix sockets: binding, identification and removal.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use tokio::net::UnixListener;

/// The name of a socket until it listens. The kubelet's plugin watcher ignores
/// names that begin with a dot.
const TEMPORARY_PREFIX: &str = ".boathook-";

/// The time between two sockets of which the newer one was made while the clock was set back.
const TICK: Duration = Duration::from_millis(1);

/// A file's identity: a socket that was created again has another one, even if
/// the file system reuses the inode. A change of label, owner or mode does not
/// affect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketId {
    device: u64,
    inode: u64,
    /// The time since the epoch at which the file was created (statx(2), `STATX_BTIME`), or
    /// last changed if the file system does not store that.
    made: Duration,
}

impl SocketId {
    /// Reads the identity of the socket at `path`; `None` if there is none, even if there is
    /// another file.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path)
            .ok()
            .filter(|f| f.file_type().is_socket())?;
        let made = found.created().ok();
        let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let changed = || {
            let nanoseconds = u32::try_from(found.ctime_nsec()).unwrap_or(0);
            Duration::new(found.ctime().unsigned_abs(), nanoseconds)
        };
        Some(SocketId {
            device: found.dev(),
            inode: found.ino(),
            made: made.unwrap_or_else(changed),
        })
    }
}

/// Returns the time since the epoch at which the socket at `path` was last modified: when it was
/// bound, unless [`Socket::bind`] made it later.
pub(super) fn modification_time(path: &Path) -> Option<Duration> {
    let found = fs::symlink_metadata(path).ok()?;
    let seconds = u64::try_from(found.mtime()).unwrap_or(0);
    let nanoseconds = u32::try_from(found.mtime_nsec()).unwrap_or(0);
    let is_socket = found.file_type().is_socket();
    is_socket.then(|| Duration::new(seconds, nanoseconds))
}

fn set_modification_time(path: &Path, time: Duration) -> io::Result<()> {
    let flag = UtimensatFlags::NoFollowSymlink;
    let (access, modification) = (TimeSpec::UTIME_OMIT, TimeSpec::from_duration(time));
    Ok(utimensat(AT_FDCWD, path, &access, &modification, flag)?)
}

/// The state of the path of the plugin's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The path has the socket that this process serves.
    Ours,
    /// The path has no file, or a socket at which no process listens.
    Free,
    /// The path has a socket that another process serves.
    Taken,
}

/// A listening socket whose file is removed on drop.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    id: SocketId,
    listener: Arc<UnixListener>,
}

impl Socket {
    /// Listens at `path`, for root alone. An existing socket is replaced: the
    /// newest process serves. The path is never free in between, because another
    /// boathook-plugin would use it. The new socket is newer than `newest`, the modification time
    /// of a socket, even if the wall clock was set back since.
    ///
    /// # Errors
    /// The directory is missing or not writable, or the file at `path`
    /// is not a socket.
    pub(crate) fn bind(path: PathBuf, newest: Option<Duration>) -> io::Result<Self> {
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not a socket exists there",
            ));
        }
        let unique = RandomState::new().hash_one(&path);
        let temporary = path.with_file_name(format!("{TEMPORARY_PREFIX}{unique:016x}"));
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
        if let Some(newest) = newest
            && modification_time(&temporary) <= Some(newest)
        {
            set_modification_time(&temporary, newest + TICK)?;
        }
        fs::rename(&temporary, &path)?;
        let id = SocketId::read(&path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Socket {
            path,
            id,
            listener: Arc::new(listener),
        })
    }

    pub(crate) fn listener(&self) -> Arc<UnixListener> {
        Arc::clone(&self.listener)
    }

    pub(crate) fn presence(&self) -> Presence {
        match SocketId::read(&self.path) {
            Some(id) if id == self.id => Presence::Ours,
            Some(_) if is_served(&self.path) => Presence::Taken,
            _ => Presence::Free,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if SocketId::read(&self.path) == Some(self.id) {
            // An error is ignored, because a stale socket is replaced at the next start.
            let _ = remove(&self.path);
        }
    }
}

/// Returns whether a process listens at `path`.
pub(crate) fn is_served(path: &Path) -> bool {
    // Connecting to a Unix socket does not wait: it succeeds at once, or the
    // queue is full (EAGAIN), which only a listener has.
    match UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes sockets in `directory` that killed processes have left.
pub(crate) fn remove_stale(directory: &Path) {
    use crate::kubelet_dir::{SOCKET_PREFIX, SOCKET_SUFFIX};
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let ours = name.starts_with(SOCKET_PREFIX) && name.ends_with(SOCKET_SUFFIX)
            || name.starts_with(TEMPORARY_PREFIX);
        if ours {
            remove_if_stale(&path);
        }
    }
}

/// Removes the socket at `path` if no process listens at it.
pub(crate) fn remove_if_stale(path: &Path) {
    if SocketId::read(path).is_some() && !is_served(path) {
        match remove(path) {
            Ok(()) => tracing::info!("removed stale socket {}", path.display()),
            Err(error) => {
                tracing::warn!("cannot remove stale socket {}: {error}", path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_detects_what_is_at_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("boathook-a.sock");
        let first = Socket::bind(path.clone(), None).unwrap();
        assert_eq!(first.presence(), Presence::Ours);
        // As restorecon and chown do: it stays the same socket.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(first.presence(), Presence::Ours);
        fs::remove_file(&path).unwrap();
        assert_eq!(first.presence(), Presence::Free);
        let second = Socket::bind(path.clone(), None).unwrap();
        assert_eq!(first.presence(), Presence::Taken);
        drop(first);
        // The first may not remove the second's.
        assert_eq!(second.presence(), Presence::Ours);
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_is_newer_than_another_one_from_the_future() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second, third] = ["1", "2", "3"].map(|name| directory.path().join(name));
        let _first = Socket::bind(first.clone(), None).unwrap();
        let now = modification_time(&first).unwrap();
        let future = now + Duration::from_secs(86_400);
        set_modification_time(&first, future).unwrap();
        let _second = Socket::bind(second.clone(), Some(future)).unwrap();
        assert_eq!(modification_time(&second), Some(future + TICK));
        let past = now.saturating_sub(Duration::from_secs(1));
        let _third = Socket::bind(third.clone(), Some(past)).unwrap();
        let time = modification_time(&third).unwrap();
        assert!(time >= now && time < future, "{time:?}");
    }

    #[tokio::test]
    async fn only_our_own_stale_sockets_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in [".boathook-1", "boathook-old.sock", "other.sock"] {
            drop(std::os::unix::net::UnixListener::bind(at(name)).unwrap());
        }
        for name in ["boathook-file.sock", "boathook-a.b_c.handover"] {
            fs::write(at(name), "").unwrap();
        }
        let live = Socket::bind(at("boathook-live.sock"), None).unwrap();
        remove_stale(directory.path());
        for name in [
            "other.sock",
            "boathook-file.sock",
            "boathook-a.b_c.handover",
            "boathook-live.sock",
        ] {
            assert!(at(name).exists(), "{name}");
        }
        assert!(!at("boathook-old.sock").exists());
        drop(live);
    }

    #[tokio::test]
    async fn what_is_no_socket_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("boathook-a.sock");
        fs::write(&path, "precious").unwrap();
        assert!(Socket::bind(path.clone(), None).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}

//! Creates, identifies and removes the plugin's Unix sockets.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use tokio::net::UnixListener;

/// The prefix of the temporary name that a socket has until it is ready. The kubelet's plugin
/// watcher ignores names that begin with a dot. Therefore [`Socket::bind_in`] keeps such a name for
/// a socket that only other instances of the plugin use.
const TEMPORARY_PREFIX: &str = ".boathook-";

/// The minimum difference between the modification times of two sockets. If the clock was set back,
/// the newer socket gets a changed time to keep this difference.
const MIN_AGE_DIFFERENCE: Duration = Duration::from_millis(1);

/// The identity of a socket file: its inode and modification time. It does not change with the
/// security label, the owner or the mode. A recreated socket has another identity, even if the file
/// system reuses the inode. The creation time is not used, because not every libc and file system
/// reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketId {
    inode: Inode,
    /// The modification time since the Unix epoch: the time at which the socket was bound.
    modification_time: Duration,
}

/// The inode number of a file with the device number of its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
}

impl SocketId {
    /// Reads the identity of the socket at `path`. Returns `None` if there is no file, or if the
    /// file is not a socket.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path)
            .ok()
            .filter(|metadata| metadata.file_type().is_socket())?;
        let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
        let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        Some(SocketId {
            inode: Inode {
                device: metadata.dev(),
                number: metadata.ino(),
            },
            modification_time: Duration::new(seconds, nanoseconds),
        })
    }
}

/// Returns the modification time of the socket at `path`, since the Unix epoch. This is the time at
/// which the socket was bound, unless [`Socket::bind`] or [`Socket::backdate`] changed it.
pub(super) fn modification_time(path: &Path) -> Option<Duration> {
    SocketId::read(path).map(|id| id.modification_time)
}

fn set_modification_time(path: &Path, time: Duration) -> io::Result<()> {
    let flag = UtimensatFlags::NoFollowSymlink;
    let (access_time, modification_time) = (TimeSpec::UTIME_OMIT, TimeSpec::from_duration(time));
    Ok(utimensat(
        AT_FDCWD,
        path,
        &access_time,
        &modification_time,
        flag,
    )?)
}

/// The state of the path at which this process created its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathState {
    /// The path has the socket of this process.
    ServedByThisProcess,
    /// The path has no socket, or a socket at which no process listens.
    Unserved,
    /// The path has a socket at which another process listens.
    ServedByOtherProcess,
}

/// A listening Unix socket and its file. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    /// The inode of the socket file. No other file gets this inode while `listener` is open.
    inode: Inode,
    listener: Arc<UnixListener>,
}

impl Socket {
    /// Creates a socket at `path` that only root can connect to. Replaces an existing socket
    /// atomically, because another instance would bind the path if it were free for a moment. The
    /// new socket gets a later modification time than `newest_peer_time`, even if the clock was set
    /// back.
    ///
    /// # Errors
    /// Returns an error if the directory is missing or not writable, or if the file at `path` is
    /// not a socket.
    pub(crate) fn bind(path: PathBuf, newest_peer_time: Option<Duration>) -> io::Result<Self> {
        if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.file_type().is_socket()) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not a socket exists there",
            ));
        }
        // If one of the next steps fails, dropping this value removes the temporary file.
        let mut socket = Self::bind_temporary(&path)?;
        if let Some(peer_time) = newest_peer_time
            && modification_time(&socket.path).is_some_and(|time| time <= peer_time)
        {
            set_modification_time(&socket.path, peer_time + MIN_AGE_DIFFERENCE)?;
        }
        fs::rename(&socket.path, &path)?;
        socket.path = path;
        Ok(socket)
    }

    /// Creates a socket in `directory` by which other instances find this one before it serves a
    /// resource. It keeps a temporary name, which the kubelet ignores. No connection is accepted.
    ///
    /// # Errors
    /// Returns an error if the directory is missing or not writable.
    pub(crate) fn bind_in(directory: &Path) -> io::Result<Self> {
        Self::bind_temporary(&directory.join("instance"))
    }

    /// Creates a socket with a temporary name in the directory of `path`.
    fn bind_temporary(path: &Path) -> io::Result<Self> {
        let suffix = RandomState::new().hash_one(path);
        let temporary_path = path.with_file_name(format!("{TEMPORARY_PREFIX}{suffix:016x}"));
        let listener = Arc::new(UnixListener::bind(&temporary_path)?);
        let id = SocketId::read(&temporary_path).ok_or(io::ErrorKind::NotFound)?;
        let socket = Socket {
            path: temporary_path,
            inode: id.inode,
            listener,
        };
        fs::set_permissions(&socket.path, fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    }

    /// Gives this socket a modification time earlier than `reference_time`. An instance whose
    /// socket has that time or a later one then serves the resource.
    ///
    /// # Errors
    /// Returns an error if the file cannot be changed, or is not the file of this socket.
    pub(super) fn backdate(&self, reference_time: Duration) -> io::Result<()> {
        if !self.owns_path() {
            return Err(io::ErrorKind::NotFound.into());
        }
        set_modification_time(
            &self.path,
            reference_time.saturating_sub(MIN_AGE_DIFFERENCE),
        )
    }

    pub(crate) fn listener(&self) -> Arc<UnixListener> {
        Arc::clone(&self.listener)
    }

    pub(crate) fn path_state(&self) -> PathState {
        match SocketId::read(&self.path) {
            Some(id) if id.inode == self.inode => PathState::ServedByThisProcess,
            Some(_) if is_served(&self.path) => PathState::ServedByOtherProcess,
            _ => PathState::Unserved,
        }
    }

    fn owns_path(&self) -> bool {
        SocketId::read(&self.path).is_some_and(|id| id.inode == self.inode)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.owns_path() {
            // An error is ignored, because the next start of the plugin replaces a stale socket.
            let _ = remove_file_if_exists(&self.path);
        }
    }
}

/// Returns whether a process listens at the socket `path`, or may listen there. The call does not
/// wait until the process accepts the connection.
pub(crate) fn is_served(path: &Path) -> bool {
    // The socket is non-blocking, because connect(2) would wait while the listener's backlog is
    // full.
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let connect_result = UnixAddr::new(path).and_then(|address| {
        let client = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(client.as_raw_fd(), &address)
    });
    connect_result
        .map_err(io::Error::from)
        .map_or_else(|error| !is_without_listener(&error), |()| true)
}

/// Returns whether the error of a connection shows that no process listens at the path. Other
/// errors do not show it: the listener's backlog may be full, this process may have no descriptor
/// left, or a security module may deny the connection.
pub(super) fn is_without_listener(error: &io::Error) -> bool {
    // An error without a number comes from the standard library, for example for a path that no
    // socket can have.
    let Some(number) = error.raw_os_error() else {
        return true;
    };
    matches!(
        Errno::from_raw(number),
        Errno::ECONNREFUSED
            | Errno::ENOENT
            | Errno::ENOTDIR
            | Errno::ENAMETOOLONG
            | Errno::EPROTOTYPE
    )
}

fn remove_file_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the plugin's sockets in `directory` at which no process listens. An instance that is
/// killed leaves such a socket.
pub(crate) fn remove_stale_sockets(directory: &Path) {
    for path in list_plugin_sockets(directory) {
        remove_socket_if_stale(&path);
    }
}

pub(super) fn list_plugin_sockets(directory: &Path) -> Vec<PathBuf> {
    use crate::kubelet_dir::{SOCKET_PREFIX, SOCKET_SUFFIX};
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let is_plugin_socket = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.starts_with(SOCKET_PREFIX) && name.ends_with(SOCKET_SUFFIX)
            || name.starts_with(TEMPORARY_PREFIX)
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(is_plugin_socket).collect()
}

/// Removes the socket at `path` if no process listens at it.
pub(crate) fn remove_socket_if_stale(path: &Path) {
    if SocketId::read(path).is_some() && !is_served(path) {
        match remove_file_if_exists(path) {
            Ok(()) => tracing::info!("removed stale socket {}", path.display()),
            Err(error) => {
                tracing::warn!("cannot remove stale socket {}: {error}", path.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;

    #[tokio::test]
    async fn a_socket_detects_what_owns_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("boathook-a.sock");
        let first = Socket::bind(path.clone(), None).unwrap();
        assert_eq!(first.path_state(), PathState::ServedByThisProcess);
        // As restorecon and chown do: it stays the same socket.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(first.path_state(), PathState::ServedByThisProcess);
        set_modification_time(&path, Duration::from_secs(1)).unwrap();
        assert_eq!(first.path_state(), PathState::ServedByThisProcess);
        fs::remove_file(&path).unwrap();
        assert_eq!(first.path_state(), PathState::Unserved);
        let second = Socket::bind(path.clone(), None).unwrap();
        assert_eq!(first.path_state(), PathState::ServedByOtherProcess);
        drop(first);
        // The first may not remove the second's.
        assert_eq!(second.path_state(), PathState::ServedByThisProcess);
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn only_another_socket_has_another_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubelet.sock");
        let bind = || drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        bind();
        let first = SocketId::read(&path).unwrap();
        // The clock of the file system advances by some milliseconds.
        std::thread::sleep(Duration::from_millis(20));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(SocketId::read(&path), Some(first));
        // Many file systems give the inode to the next file.
        fs::remove_file(&path).unwrap();
        bind();
        let second = SocketId::read(&path).unwrap();
        assert_ne!(second, first);
        let reused = SocketId {
            inode: first.inode,
            ..second
        };
        assert_ne!(reused, first);
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
        assert_eq!(
            modification_time(&second),
            Some(future + MIN_AGE_DIFFERENCE)
        );
        let past = now.saturating_sub(Duration::from_secs(1));
        let _third = Socket::bind(third.clone(), Some(past)).unwrap();
        let time = modification_time(&third).unwrap();
        assert!(time >= now && time < future, "{time:?}");
    }

    #[tokio::test]
    async fn a_socket_that_is_made_older_stays_the_same_socket() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["1", "2"].map(|name| directory.path().join(name));
        let _first = Socket::bind(first.clone(), None).unwrap();
        let newer = Socket::bind(second.clone(), modification_time(&first)).unwrap();
        assert!(modification_time(&second) > modification_time(&first));
        newer.backdate(modification_time(&first).unwrap()).unwrap();
        assert!(modification_time(&second) < modification_time(&first));
        assert_eq!(newer.path_state(), PathState::ServedByThisProcess);
        fs::remove_file(&second).unwrap();
        assert!(newer.backdate(Duration::from_secs(1)).is_err());
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
        remove_stale_sockets(directory.path());
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

    #[test]
    fn a_listener_with_a_full_queue_serves() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full.sock");
        assert!(!is_served(&path));
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        assert!(!is_served(&path));
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let asked = path.clone();
        std::thread::spawn(move || sender.send(is_served(&asked)));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(true));
        remove_socket_if_stale(&path);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_socket_that_cannot_be_placed_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        // A name that is too long for a file, but its directory takes the temporary one.
        let path = directory.path().join("a".repeat(300));
        Socket::bind(path, None).unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
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

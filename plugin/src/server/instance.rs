//! Connects to other instances of `boathook-plugin` that serve the same resource on this node.
//!
//! During the update of a DaemonSet, two instances run for some seconds. Each has its own socket,
//! and the instance with the newer socket serves. The kubelet (1.25 to 1.36) knows only one plugin
//! for each resource: the plugin that registered last. When the stream of an earlier instance ends,
//! the kubelet disconnects the plugin that it knows, and refuses pods until that plugin registers
//! again. If a registration fails, the kubelet forgets which plugin it knows, and then disconnects
//! no plugin. Therefore the newer instance takes three steps:
//!
//! 1. It registers, and the kubelet opens its stream.
//! 2. It registers again and refuses to tell its options, so that this registration fails. From now
//!    on the earlier instance may end: it is released.
//! 3. It waits until the earlier instance has ended, and registers for the last time, so that the
//!    kubelet notices the end of this instance.
//!
//! Between steps 2 and 3 the kubelet does not notice the end of any instance, and keeps the
//! devices. If an instance receives SIGTERM between these steps, it therefore registers before it
//! ends. If it is killed instead, the marker file of [`super::handover_marker`] is left for the
//! next instance.
//!
//! If the newer instance receives SIGTERM while the earlier one still runs, for example because an
//! update is undone, it makes its socket older than the socket of the earlier instance. The earlier
//! instance then takes the same three steps, and the newer instance ends after the second step.
//!
//! Kubelets after 1.36 identify a plugin by its socket, and kubelets before 1.25 by its connection.
//! With these kubelets steps 2 and 3 have no effect.

use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use daemon::host_inventory::Notifications;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::socket::{SocketId, is_served, is_without_listener, list_plugin_sockets};

/// The interval at which this process checks whether an instance has ended, if it could not open a
/// connection to that instance.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The interval at which other instances of the plugin are searched for if inotify reports no
/// change.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// Another instance of the plugin. This instance waits until the other one has ended.
#[derive(Debug)]
pub(super) enum Peer {
    /// An idle connection to the instance. It is closed when the instance ends.
    Connected(UnixStream),
    /// The path of the instance's socket. A connection failed, for example because the backlog of
    /// the listener is full, but the instance may still run.
    Unresponsive(PathBuf),
}

impl Peer {
    /// Connects to the instance that listens at `path`. Returns `None` if no process listens there.
    pub(super) async fn connect(path: &Path) -> Option<Self> {
        // The call does not wait if the backlog is full, because the socket is non-blocking.
        match UnixStream::connect(path).await {
            Ok(stream) => Some(Self::Connected(stream)),
            Err(error) if is_without_listener(&error) => None,
            Err(_) => Some(Self::Unresponsive(path.to_owned())),
        }
    }

    /// Waits until the instance has ended: its connection is closed, or no process listens at its
    /// socket any more.
    pub(super) async fn wait_for_end(&self) {
        match self {
            Self::Connected(stream) => {
                while stream.readable().await.is_ok() && !self.has_ended() {}
            }
            Self::Unresponsive(_) => {
                while !self.has_ended() {
                    sleep(POLL_INTERVAL).await;
                }
            }
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Connected(stream) => match stream.try_read(&mut [0; 256]) {
                Ok(length) => length == 0,
                Err(error) => error.kind() != io::ErrorKind::WouldBlock,
            },
            Self::Unresponsive(path) => !is_served(path),
        }
    }
}

/// The other instances of `boathook-plugin` on this node, for all resources. They are found by
/// their sockets. An instance creates a socket before its first scan writes CDI files, and the
/// socket remains if the instance is killed. A kubelet that starts removes all sockets. After that,
/// an instance is found only when it has created a new socket for a resource.
#[derive(Debug)]
pub(crate) struct OtherInstances {
    directories: Vec<PathBuf>,
    peers: Vec<(SocketId, Peer)>,
    /// The sockets of this process. They are listed so that this process does not connect to itself
    /// again.
    own_sockets: Vec<SocketId>,
    /// The socket files of instances that have ended or were killed.
    stale_sockets: Vec<SocketId>,
}

/// The time after which a socket without a listener counts as left by a killed instance. A new
/// socket has no listener for some microseconds, because bind(2) creates the file before listen(2)
/// is called.
const LISTEN_DELAY: Duration = Duration::from_millis(100);

impl OtherInstances {
    /// Finds the instances by their sockets in `directories`. This process must not have a socket
    /// there yet.
    pub(crate) async fn connect(directories: Vec<PathBuf>) -> Self {
        let mut instances = OtherInstances {
            directories,
            peers: Vec::new(),
            own_sockets: Vec::new(),
            stale_sockets: Vec::new(),
        };
        for (id, path) in instances.list_sockets() {
            match Peer::connect(&path).await {
                Some(peer) => instances.peers.push((id, peer)),
                None => instances.stale_sockets.push(id),
            }
        }
        instances
    }

    /// Waits until no other instance is left, and at least one has ended. Also waits for instances
    /// that start meanwhile. `socket_notifications` reports changes in the directories.
    pub(crate) async fn wait_for_end(&mut self, socket_notifications: &mut Notifications) {
        loop {
            socket_notifications.clear();
            let had_peers = !self.peers.is_empty();
            let ended_peers = self.peers.extract_if(.., |(_, peer)| peer.has_ended());
            self.stale_sockets.extend(ended_peers.map(|(id, _)| id));
            let was_one_killed = self.find_started_instances().await;
            let Some((_, peer)) = self.peers.first() else {
                if had_peers || was_one_killed {
                    return;
                }
                let _ = timeout(SEARCH_INTERVAL, socket_notifications.wait()).await;
                continue;
            };
            tokio::select! {
                () = peer.wait_for_end() => {}
                () = socket_notifications.wait() => {}
                () = sleep(SEARCH_INTERVAL) => {}
            }
        }
    }

    /// Connects to instances that have started since the last call. Returns whether one of them was
    /// killed before this process could connect to it.
    async fn find_started_instances(&mut self) -> bool {
        let sockets = self.list_sockets();
        let is_present = |known: &SocketId| sockets.iter().any(|(id, _)| id == known);
        self.own_sockets.retain(is_present);
        self.stale_sockets.retain(is_present);
        let mut was_one_killed = false;
        for (id, path) in sockets {
            let is_known = self.peers.iter().any(|(known, _)| *known == id)
                || self.own_sockets.contains(&id)
                || self.stale_sockets.contains(&id);
            if is_known {
                continue;
            }
            let mut peer = Peer::connect(&path).await;
            if peer.is_none() {
                sleep(LISTEN_DELAY).await;
                peer = Peer::connect(&path).await;
            }
            match peer {
                Some(Peer::Connected(stream)) if is_from_this_process(&stream) => {
                    self.own_sockets.push(id);
                }
                Some(Peer::Connected(stream)) => {
                    tracing::info!("another boathook-plugin has started: {}", path.display());
                    self.peers.push((id, Peer::Connected(stream)));
                }
                // Without a connection it is unknown whether the socket belongs to this process.
                // Therefore the next search tries it again.
                Some(Peer::Unresponsive(_)) => {}
                // The process of this socket has renamed or removed the file meanwhile. It was not
                // killed.
                None if SocketId::read(&path) != Some(id) => {}
                None => {
                    tracing::info!("another boathook-plugin was killed: {}", path.display());
                    self.stale_sockets.push(id);
                    was_one_killed = true;
                }
            }
        }
        was_one_killed
    }

    fn list_sockets(&self) -> Vec<(SocketId, PathBuf)> {
        let directories = self.directories.iter();
        let paths = directories.flat_map(|directory| list_plugin_sockets(directory));
        paths
            .filter_map(|path| Some((SocketId::read(&path)?, path)))
            .collect()
    }
}

/// Returns whether the socket at the other end of the connection belongs to this process.
fn is_from_this_process(stream: &UnixStream) -> bool {
    let own_id = i32::try_from(process::id()).ok();
    let credentials = stream.peer_cred();
    own_id.is_some() && credentials.is_ok_and(|credentials| credentials.pid() == own_id)
}

/// The instance of the plugin that served the resource before this one.
#[derive(Debug)]
pub(super) enum Predecessor {
    Running {
        peer: Peer,
        /// The instance's socket. `None` means that the socket has disappeared meanwhile.
        socket_id: Option<SocketId>,
        /// Whether the kubelet will ignore the end of the earlier instance.
        is_released: bool,
    },
    /// The earlier instance has ended, and the kubelet ignored its end. The value is the time of
    /// its end.
    Ended(Instant),
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use daemon::host_inventory::Notifier;
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
    };
    use nix::unistd::{Uid, setfsuid};

    use super::*;

    /// Returns whether instances have ended.
    async fn have_ended(
        instances: &mut OtherInstances,
        notifier: &Notifier,
        notifications: &mut Notifications,
    ) -> bool {
        notifier.notify();
        let wait = instances.wait_for_end(notifications);
        timeout(5 * LISTEN_DELAY, wait).await.is_ok()
    }

    #[tokio::test]
    async fn an_instance_that_was_killed_at_once_is_noticed_once() {
        let directory = tempfile::tempdir().unwrap();
        let leave_socket = |name: &str| {
            drop(UnixListener::bind(directory.path().join(name)).unwrap());
        };
        leave_socket(".boathook-of-before");
        let (notifier, mut notifications) = Notifier::new();
        let mut instances = OtherInstances::connect(vec![directory.path().to_owned()]).await;
        for name in [".boathook-1", "boathook-dummy.com_npu.sock"] {
            assert!(
                !have_ended(&mut instances, &notifier, &mut notifications).await,
                "{name}"
            );
            leave_socket(name);
            assert!(
                have_ended(&mut instances, &notifier, &mut notifications).await,
                "{name}"
            );
        }
    }

    /// Only an error of a socket without a listener tells that an instance has ended.
    #[tokio::test]
    async fn an_instance_that_cannot_be_connected_to_runs_until_it_ends() {
        for is_there_at_start in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let set_mode = |path: &Path, mode| {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            };
            set_mode(directory.path(), 0o755);
            let path = directory.path().join("boathook-dummy.com_npu.sock");
            let bind_closed = || {
                let listener = UnixListener::bind(&path).unwrap();
                set_mode(&path, 0);
                listener
            };
            // Root may connect to each socket. This user is that of this thread alone.
            let user = setfsuid(Uid::current());
            let become_other_user = || setfsuid(Uid::from_raw(65_534));
            let directories = vec![directory.path().to_owned()];
            let (notifier, mut notifications) = Notifier::new();
            let (mut instances, listener) = if is_there_at_start {
                let listener = bind_closed();
                become_other_user();
                (OtherInstances::connect(directories).await, listener)
            } else {
                let instances = OtherInstances::connect(directories).await;
                let listener = bind_closed();
                become_other_user();
                (instances, listener)
            };
            assert!(!have_ended(&mut instances, &notifier, &mut notifications).await);
            assert!(is_served(&path));
            setfsuid(user);
            set_mode(&path, 0o600);
            // An instance that is found later would be recognised as this process.
            if is_there_at_start {
                assert!(!have_ended(&mut instances, &notifier, &mut notifications).await);
            }
            drop(listener);
            assert!(have_ended(&mut instances, &notifier, &mut notifications).await);
        }
    }

    #[tokio::test]
    async fn an_instance_with_a_full_queue_runs_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full.sock");
        assert!(Peer::connect(&path).await.is_none());
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let first = Peer::connect(&path).await.unwrap();
        let second = Peer::connect(&path).await.unwrap();
        assert!(matches!(
            (&first, &second),
            (Peer::Connected(_), Peer::Unresponsive(_))
        ));
        assert!(!first.has_ended() && !second.has_ended());
        drop(listener);
        first.wait_for_end().await;
        second.wait_for_end().await;
    }
}

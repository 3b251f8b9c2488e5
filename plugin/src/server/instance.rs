//! Other instances of `boathook-plugin` that serve the same resource on this node.
//!
//! While a DaemonSet is updated, two instances run for some seconds. Each has a socket of its
//! own, and the one with the newer socket serves. The kubelet (1.25 to 1.36) knows only one
//! plugin of each resource: when the stream of the earlier instance ends, it disconnects the
//! plugin that has registered last, and refuses pods until that one registers again. It
//! disconnects none if it knows none, and it forgets the one that it knows when a registration
//! fails. Therefore the newer instance
//!
//! 1. registers, and the kubelet opens its stream;
//! 2. registers again and refuses to tell its options, so that this registration fails. The
//!    kubelet keeps its devices and its connection, and forgets whose end it waits for;
//! 3. waits until the earlier instance has ended, and registers for the last time, so that the
//!    kubelet notices its own end.
//!
//! Between the steps 2 and 3 the kubelet notices the end of no instance, and keeps the devices. An
//! instance that is told to end then registers before it ends. For one that is killed there is the
//! mark of [`super::handover_mark`].
//!
//! Later kubelets know each plugin by its socket, and earlier ones by its connection: there the
//! steps 2 and 3 change nothing.

use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::Instant;

/// The time limit for connecting to another instance, whose queue may be full.
const CONNECT: Duration = Duration::from_secs(1);

/// A connection to another instance. It transports nothing, and its end is that of the instance.
#[derive(Debug)]
pub(super) struct Peer(UnixStream);

impl Peer {
    /// Connects to the instance that listens at `path`. Returns `None` if there is none.
    pub(super) async fn connect(path: &Path) -> Option<Self> {
        let connected = tokio::time::timeout(CONNECT, UnixStream::connect(path)).await;
        connected.ok()?.ok().map(Peer)
    }

    /// Waits until the instance has ended.
    pub(super) async fn wait_for_end(&self) {
        let mut ignored = [0; 256];
        while self.0.readable().await.is_ok() {
            match self.0.try_read(&mut ignored) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

/// The instance that served the resource before this one.
#[derive(Debug)]
pub(super) enum Predecessor {
    Running {
        peer: Peer,
        /// Whether its end changes nothing for the kubelet any more.
        is_detached: bool,
    },
    /// The detached predecessor has ended at this time.
    Ended(Instant),
}

//! Creates the socket of the resource.

use std::io;
use std::time::Duration;

use super::super::RegisterBy;
use super::super::instance::{Peer, Predecessor};
use super::super::socket::{Socket, is_served, modification_time};
use super::Lifecycle;
use crate::kubelet_dir::SocketSlot;

impl Lifecycle {
    /// Listens at a new socket. The kubelet must then be told by a new registration.
    pub(super) async fn bind(&mut self) {
        self.registered = None;
        self.idle_since = None;
        let newest_peer = match self.context.register_by {
            RegisterBy::Kubelet => self.choose_slot().await,
            // The plugin watcher identifies a plugin by its path, so the path stays the same.
            RegisterBy::Watcher => {
                self.replaces_instance = is_served(&self.socket_path(self.slot));
                self.streams.start_registration();
                None
            }
        };
        match Socket::bind(self.socket_path(self.slot), newest_peer) {
            Ok(socket) => {
                self.listener.send_replace(Some(socket.listener()));
                self.socket = Some(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.socket_directory();
                self.warn_once(format!(
                    "waiting for the kubelet to create {}",
                    directory.display()
                ));
                self.wait(self.context.timing.poll_interval).await;
            }
            Err(error) => {
                self.warn_once(format!(
                    "cannot listen at {}: {error}",
                    self.socket_path(self.slot).display()
                ));
                self.pause().await;
            }
        }
    }

    /// Chooses the socket's name: one that no other instance serves, or else the older one.
    /// Returns the modification time of the newest socket of another instance.
    async fn choose_slot(&mut self) -> Option<Duration> {
        let [first, second] = [SocketSlot::First, SocketSlot::Second];
        let (one, two) = (self.socket_path(first), self.socket_path(second));
        let peers = (Peer::connect(&one).await, Peer::connect(&two).await);
        let times = [(&peers.0, &one), (&peers.1, &two)].map(|(peer, path)| {
            let time = peer.as_ref().map(|_| modification_time(path));
            time.flatten()
        });
        let (slot, peer) = match peers {
            (Some(_), Some(newer)) if times[1] >= times[0] => (first, Some(newer)),
            (Some(newer), _) => (second, Some(newer)),
            (None, newer) => (first, newer),
        };
        self.slot = slot;
        self.replaces_instance = peer.is_some();
        self.successor = None;
        self.predecessor = peer.map(|peer| Predecessor::Running {
            peer,
            is_released: false,
        });
        times.into_iter().max().flatten()
    }
}

//! Creates the socket at which the kubelet calls the plugin for the resource.

use std::io;
use std::time::Duration;

use super::super::RegistrationMethod;
use super::super::instance::{Peer, Predecessor};
use super::super::socket::{Socket, SocketId, is_served, modification_time};
use super::Lifecycle;
use crate::kubelet_dir::SocketSlot;

impl Lifecycle {
    /// Creates a new socket and listens at it. The resource must be registered again afterwards,
    /// because the kubelet does not know the new socket.
    pub(super) async fn bind(&mut self) {
        self.registration = None;
        self.idle_start_time = None;
        let newest_peer_time = match self.context.registration_method {
            RegistrationMethod::Kubelet => self.choose_socket_slot().await,
            // The kubelet's plugin watcher identifies a plugin by its socket path, so this path
            // must not change.
            RegistrationMethod::Watcher => {
                self.has_earlier_instance = is_served(&self.socket_path(self.slot));
                self.stream_count.reset_for_registration();
                None
            }
        };
        match Socket::bind(self.socket_path(self.slot), newest_peer_time) {
            Ok(socket) => {
                self.listener_sender.send_replace(Some(socket.listener()));
                self.socket = Some(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.socket_directory();
                self.warn_once(format!(
                    "waiting for the kubelet to create {}",
                    directory.display()
                ));
                self.wait_for_change(self.context.timing.poll_interval)
                    .await;
            }
            Err(error) => {
                self.warn_once(format!(
                    "cannot listen at {}: {error}",
                    self.socket_path(self.slot).display()
                ));
                self.wait_after_failure().await;
            }
        }
    }

    /// Chooses one of the two socket names: a name at which no other instance listens. If other
    /// instances listen at both, chooses the name of the older socket. Returns the modification
    /// time of the newest socket of another instance.
    async fn choose_socket_slot(&mut self) -> Option<Duration> {
        let [first, second] = [SocketSlot::First, SocketSlot::Second];
        let (first_path, second_path) = (self.socket_path(first), self.socket_path(second));
        let peers = (
            Peer::connect(&first_path).await,
            Peer::connect(&second_path).await,
        );
        let socket_times =
            [(&peers.0, &first_path), (&peers.1, &second_path)].map(|(peer, path)| {
                let time = peer.as_ref().map(|_| modification_time(path));
                time.flatten()
            });
        let (slot, peer) = match peers {
            (Some(_), Some(newer)) if socket_times[1] >= socket_times[0] => (first, Some(newer)),
            (Some(newer), _) => (second, Some(newer)),
            (None, newer) => (first, newer),
        };
        self.slot = slot;
        self.has_earlier_instance = peer.is_some();
        self.successor = None;
        let other_path = self.socket_path(slot.other_slot());
        self.predecessor = peer.map(|peer| Predecessor::Running {
            peer,
            socket_id: SocketId::read(&other_path),
            is_released: false,
        });
        socket_times.into_iter().max().flatten()
    }
}

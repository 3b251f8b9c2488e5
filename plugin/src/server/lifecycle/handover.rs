//! Hands a resource over between this instance of the plugin and an earlier or newer one (see
//! [`super::super::instance`]).

use std::time::Duration;

use super::super::RegisterBy;
use super::super::instance::{Peer, Predecessor};
use super::super::socket::{SocketId, modification_time, remove_if_stale};
use super::Lifecycle;
use crate::kubelet_dir::socket_name;

/// The time limit of the last registration, which an instance makes before it ends if it has
/// released its predecessor.
pub(in super::super) const LAST_REGISTRATION_TIMEOUT: Duration = Duration::from_millis(400);

/// The time limit within which the predecessor must serve again.
pub(in super::super) const RETURN_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval at which the mark is read if no event arrives.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Lifecycle {
    /// Returns whether an instance with a newer socket serves the resource.
    pub(super) async fn has_successor(&mut self) -> bool {
        if self.context.register_by == RegisterBy::Watcher {
            return false;
        }
        let other = self.slot.next_slot();
        let age = |slot| modification_time(&self.socket_path(slot)).map(|time| (time, slot));
        let is_newer = age(other) > age(self.slot);
        let path = self.socket_path(other);
        if !is_newer {
            if let Some(peer) = self.successor.take().filter(|peer| !peer.has_ended()) {
                tracing::info!(resource = %self.resource, "a newer boathook-plugin is about to end");
                self.replaces_instance = true;
                self.predecessor = Some(Predecessor::Running {
                    peer,
                    is_released: false,
                });
            }
        } else if self.successor.is_none() {
            self.successor = Peer::connect(&path).await;
            if self.successor.is_none() {
                remove_if_stale(&path);
            }
        }
        self.successor.is_some()
    }

    /// Makes a registration that fails on purpose. The kubelet then ignores the end of the
    /// predecessor.
    pub(super) async fn release_predecessor(&mut self, kubelet: SocketId) {
        if let Err(error) = self.handover_mark.create() {
            let path = self.handover_mark.path().display();
            self.warn_once(format!(
                "cannot create {path}: {error}; if this instance is killed before the earlier one \
                 ends, the next one does not register before the kubelet restarts"
            ));
        }
        self.has_released = true;
        self.refusal.start();
        let answer = self.call_register(kubelet).await;
        let was_refused = self.refusal.end();
        if !was_refused && !matches!(answer, Some(Ok(()))) {
            self.pause().await;
            return;
        }
        if let Some(Predecessor::Running { is_released, .. }) = &mut self.predecessor {
            *is_released = true;
        }
        if let Err(error) = self.handover_mark.write_serving_socket(&self.socket_name()) {
            let path = self.handover_mark.path().display();
            self.warn_once(format!("cannot write {path}: {error}"));
        }
        tracing::info!(
            resource = %self.resource,
            "serving in place of another boathook-plugin, which may end now"
        );
    }

    /// Lets the predecessor serve again before this instance ends. Returns false if there is none,
    /// or if it does not serve in time.
    pub(in super::super) async fn return_to_predecessor(&mut self) -> bool {
        if !self.has_released && self.registered.is_none() {
            // The kubelet still calls the predecessor.
            return false;
        }
        // The signal may have interrupted the registration that fails on purpose.
        self.refusal.end();
        let Some(Predecessor::Running { peer, .. }) = &self.predecessor else {
            return false;
        };
        let server = socket_name(&self.resource, self.slot.next_slot());
        let time = modification_time(&self.socket_directory().join(&server));
        let (Some(socket), Some(time)) = (&self.socket, time) else {
            return false;
        };
        // The predecessor watches the directory: the change of the mark makes it compare the
        // sockets.
        let asked = socket.make_older_than(time);
        if asked.and_then(|()| self.handover_mark.create()).is_err() {
            return false;
        }
        let has_returned = async {
            while !self.handover_mark.has_serving_socket(&server) {
                let _ = tokio::time::timeout(POLL_INTERVAL, self.socket_changes.wait()).await;
            }
        };
        tokio::select! {
            () = has_returned => true,
            () = peer.wait_for_end() => false,
            () = tokio::time::sleep(RETURN_TIMEOUT) => false,
        }
    }

    /// Registers once more before this instance ends, if the kubelet would not notice its end
    /// otherwise.
    pub(in super::super) async fn end_handover(&mut self) {
        if !self.has_released {
            return;
        }
        let Some(kubelet) = SocketId::read(&self.context.kubelet.kubelet_socket()) else {
            return;
        };
        let registering = self.call_register(kubelet);
        match tokio::time::timeout(LAST_REGISTRATION_TIMEOUT, registering).await {
            Ok(Some(Ok(()))) => self.confirm_registration(),
            // The mark is left for the next instance.
            _ => tracing::warn!(
                resource = %self.resource,
                "ending during a handover, which the kubelet does not notice before the next \
                 boathook-plugin starts or it calls this one"
            ),
        }
    }
}

//! Hands a resource over between this instance of the plugin and an earlier or newer one (see
//! [`super::super::instance`]).

use std::time::Duration;

use super::super::RegistrationMethod;
use super::super::instance::{Peer, Predecessor};
use super::super::other_plugin::lists_healthy_devices;
use super::super::registration_lock::{LOCK_TIMEOUT, SHORT_LOCK_TIMEOUT};
use super::super::socket::{SocketId, is_served, modification_time, remove_socket_if_stale};
use super::Lifecycle;
use crate::kubelet_dir::socket_name;

/// The time limit for the last registration of an instance that ends during a handover. Without
/// this registration, the kubelet would not notice its end.
pub(in super::super) const LAST_REGISTRATION_TIMEOUT: Duration = Duration::from_millis(400);

/// The maximum time that this instance waits, before it ends, until the earlier instance serves the
/// resource again.
pub(in super::super) const PREDECESSOR_RETURN_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval at which the handover marker is read if inotify reports no change.
const MARKER_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time after the last registration in which the kubelet must notice the end of the stream.
pub(in super::super) const DEVICE_REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval at which the kubelet is asked for its devices in that time.
///
/// All resources do so at the same time, and the kubelet limits the calls of this API to 100 per
/// second (pkg/kubelet/apis/podresources, since Kubernetes 1.27).
const DEVICE_POLL_INTERVAL: Duration = Duration::from_millis(150);

impl Lifecycle {
    /// Returns whether an instance with a newer socket serves the resource. Updates the fields
    /// `successor` and `predecessor` if such an instance has appeared, or is about to end and makes
    /// its socket older.
    pub(super) async fn detect_successor(&mut self) -> bool {
        if self.context.registration_method == RegistrationMethod::Watcher {
            return false;
        }
        let path = self.socket_path(self.slot.other_slot());
        if !self.is_other_socket_newer() {
            if let Some(peer) = self.successor.take().filter(|peer| !peer.has_ended()) {
                tracing::info!(resource = %self.resource, "a newer boathook-plugin is about to end");
                self.has_earlier_instance = true;
                self.predecessor = Some(Predecessor::Running {
                    peer,
                    socket_id: SocketId::read(&path),
                    is_released: false,
                });
            }
        } else if self.successor.is_none() {
            self.successor = Peer::connect(&path).await;
            if self.successor.is_none() {
                remove_socket_if_stale(&path);
            }
        }
        self.successor.is_some()
    }

    /// Returns whether another instance of the plugin has a newer socket and listens at it. After
    /// [`Self::return_to_predecessor`], the predecessor also has a newer socket. However, it may
    /// hang, and does not count.
    pub(super) fn is_replaced(&self) -> bool {
        let path = self.socket_path(self.slot.other_slot());
        let is_predecessor = match &self.predecessor {
            Some(Predecessor::Running { socket_id, .. }) => *socket_id == SocketId::read(&path),
            _ => false,
        };
        !is_predecessor && self.is_other_socket_newer() && is_served(&path)
    }

    /// Returns whether the socket of the other slot exists and is newer than that of this instance.
    fn is_other_socket_newer(&self) -> bool {
        let get_age_key =
            |slot| modification_time(&self.socket_path(slot)).map(|time| (time, slot));
        get_age_key(self.slot.other_slot()) > get_age_key(self.slot)
    }

    /// Sends the kubelet a registration that must fail (step 2 of a handover). After this, the
    /// kubelet keeps the devices of the resource when the predecessor ends.
    pub(super) async fn send_failing_registration(&mut self, kubelet_socket_id: SocketId) {
        if let Err(error) = self.handover_marker.create() {
            let path = self.handover_marker.path().display();
            self.warn_once(format!(
                "cannot create {path}: {error}; if this instance is killed before the earlier one \
                 ends, the next one does not register before the kubelet restarts"
            ));
        }
        self.has_released_predecessor = true;
        self.refusal.start();
        let result = self.call_register(kubelet_socket_id, LOCK_TIMEOUT).await;
        let was_refused = self.refusal.end();
        if !was_refused && !matches!(result, Some(Ok(()))) {
            self.wait_after_failure().await;
            return;
        }
        if let Some(Predecessor::Running { is_released, .. }) = &mut self.predecessor {
            *is_released = true;
        }
        if let Err(error) = self
            .handover_marker
            .write_serving_socket(&self.socket_name())
        {
            let path = self.handover_marker.path().display();
            self.warn_once(format!("cannot write {path}: {error}"));
        }
        tracing::info!(
            resource = %self.resource,
            "serving in place of another boathook-plugin, which may end now"
        );
    }

    /// Makes the predecessor serve the resource again before this instance ends. Returns false if
    /// there is no predecessor, or if it does not serve within [`PREDECESSOR_RETURN_TIMEOUT`].
    pub(in super::super) async fn return_to_predecessor(&mut self) -> bool {
        if !self.has_released_predecessor && self.registration.is_none() {
            // Nothing needs to change, because the kubelet still calls the predecessor.
            return false;
        }
        // The refusal of GetDevicePluginOptions ends here, because the signal may have interrupted
        // the registration that was meant to fail.
        self.refusal.end();
        let Some(Predecessor::Running { peer, .. }) = &self.predecessor else {
            return false;
        };
        let predecessor_socket = socket_name(&self.resource, self.slot.other_slot());
        let predecessor_time =
            modification_time(&self.socket_directory().join(&predecessor_socket));
        let (Some(socket), Some(time)) = (&self.socket, predecessor_time) else {
            return false;
        };
        // The predecessor watches the directory of the marker. When the marker changes, the
        // predecessor compares the ages of the two sockets.
        let time_result = socket.backdate(time);
        if time_result
            .and_then(|()| self.handover_marker.create())
            .is_err()
        {
            return false;
        }
        let wait_for_return = async {
            while !self
                .handover_marker
                .names_serving_socket(&predecessor_socket)
            {
                let _ =
                    tokio::time::timeout(MARKER_POLL_INTERVAL, self.socket_notifications.wait())
                        .await;
            }
        };
        tokio::select! {
            () = wait_for_return => true,
            () = peer.wait_for_end() => false,
            () = tokio::time::sleep(PREDECESSOR_RETURN_TIMEOUT) => false,
        }
    }

    /// Registers once more before this instance ends, if the kubelet would otherwise not notice its
    /// end.
    pub(in super::super) async fn end_handover(&mut self) {
        // Either the kubelet notices the end anyway, or a newer instance is responsible for the
        // handover.
        if !self.has_released_predecessor || self.is_replaced() {
            return;
        }
        let Some(kubelet_socket_id) =
            SocketId::read(&self.context.kubelet_dir.kubelet_socket_path())
        else {
            return;
        };
        let registration = self.call_register(kubelet_socket_id, SHORT_LOCK_TIMEOUT);
        match tokio::time::timeout(LAST_REGISTRATION_TIMEOUT, registration).await {
            Ok(Some(Ok(()))) if self.has_kubelet_removed_devices().await => {
                self.confirm_registration();
            }
            // The kubelet has received the end of the new stream and of an earlier one at the same
            // time, and keeps the devices. The marker is kept as well.
            Ok(Some(Ok(()))) => tracing::warn!(
                resource = %self.resource,
                "this plugin ends while it takes the resource over from an earlier instance, and the \
                 kubelet still lists the devices; the boathook-plugin that starts next on this node \
                 registers them again"
            ),
            // The handover marker is kept, because it makes the next instance register.
            _ => tracing::warn!(
                resource = %self.resource,
                "ending during a handover, which the kubelet does not notice before the next \
                 boathook-plugin starts or it calls this one"
            ),
        }
    }

    /// Waits until the kubelet no longer lists healthy devices of the resource. Returns false if it
    /// has not said so after [`DEVICE_REMOVAL_TIMEOUT`], also if its last answers were errors. If
    /// its PodResources API never answers, the devices count as removed.
    async fn has_kubelet_removed_devices(&self) -> bool {
        let socket = self.context.kubelet_dir.pod_resources_socket_path();
        let mut has_listed_devices = false;
        let wait_for_removal = async {
            loop {
                match lists_healthy_devices(&socket, &self.resource).await {
                    Some(false) => return,
                    Some(true) => has_listed_devices = true,
                    // The kubelet may have refused the call because of its rate limit.
                    None => {}
                }
                tokio::time::sleep(DEVICE_POLL_INTERVAL).await;
            }
        };
        let result = tokio::time::timeout(DEVICE_REMOVAL_TIMEOUT, wait_for_removal).await;
        result.is_ok() || !has_listed_devices
    }
}

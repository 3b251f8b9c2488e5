//! Registers the resource with the kubelet.

use std::path::Path;
use std::time::Duration;

use daemon::host_inventory::{FaultLog, Notifications};
use tokio::time::Instant;

use super::super::instance::Predecessor;
use super::super::register;
use super::super::registration_lock::{LOCK_TIMEOUT, RegistrationLock};
use super::super::socket::{PathState, Socket, SocketId, remove_socket_if_stale};
use super::Lifecycle;

/// The minimum age of a registration for which a closed stream is no failure: the resource is then
/// registered again at once. If the registration is younger, a growing delay comes first.
const MIN_REGISTRATION_AGE: Duration = Duration::from_secs(1);

impl Lifecycle {
    pub(super) async fn register(&mut self, kubelet_socket_id: SocketId) {
        let previous_registration = self.registration.take();
        let previous_age = previous_registration
            .filter(|(kubelet_socket, _)| *kubelet_socket == kubelet_socket_id)
            .map(|(_, time)| time.elapsed());
        let is_repetition = previous_age.is_some();
        if let Some(age) = previous_age {
            self.log_repetition_reason();
            let streams = *self.stream_states.borrow();
            // If the kubelet never keeps a stream open, the delay between registrations grows.
            if streams.open_count == 0 && !(streams.has_opened && age > MIN_REGISTRATION_AGE) {
                self.wait_after_failure().await;
            }
        }
        self.stream_count.reset_for_registration();
        let Some(result) = self.call_register(kubelet_socket_id, LOCK_TIMEOUT).await else {
            return;
        };
        let kubelet_socket = self.context.kubelet_dir.kubelet_socket_path();
        self.context
            .metrics
            .count_registration(&self.resource, result.is_ok());
        match result {
            Ok(()) => {
                tracing::info!(resource = %self.resource, "registered at {}", kubelet_socket.display());
                self.registration = Some((kubelet_socket_id, Instant::now()));
                self.fault_log = FaultLog::default();
                self.has_earlier_instance = false;
                self.confirm_registration();
                if let Some(Predecessor::Ended(_)) = self.predecessor {
                    self.predecessor = None;
                    // If the predecessor was killed, it has not removed its socket.
                    remove_socket_if_stale(&self.socket_path(self.slot.other_slot()));
                }
                if !is_repetition {
                    self.backoff.reset();
                }
            }
            Err(error) => {
                self.warn_once(format!("{error}; trying again"));
                self.wait_after_failure().await;
            }
        }
    }

    /// Logs the reason why the resource is registered again with the same kubelet.
    fn log_repetition_reason(&mut self) {
        let streams = *self.stream_states.borrow();
        match (streams.open_count, streams.has_opened) {
            (0, false) => self
                .warn_once("the kubelet has not called ListAndWatch; registering again".to_owned()),
            (0, true) => tracing::info!(
                resource = %self.resource,
                "the kubelet has closed ListAndWatch; registering again"
            ),
            _ => tracing::info!(
                resource = %self.resource,
                "the earlier boathook-plugin has ended; registering again, so that the kubelet \
                 notices the end of this one"
            ),
        }
    }

    /// Calls Register at the kubelet's socket. Returns `None` if a newer instance serves the
    /// resource, or if the kubelet's or this instance's socket disappeared during the call.
    pub(super) async fn call_register(
        &self,
        kubelet_socket_id: SocketId,
        lock_timeout: Duration,
    ) -> Option<anyhow::Result<()>> {
        let directory = self.context.kubelet_dir.device_plugins_dir();
        let _lock = RegistrationLock::take(&directory, lock_timeout).await;
        if self.is_replaced() {
            return None;
        }
        let kubelet_path = self.context.kubelet_dir.kubelet_socket_path();
        let name = self.socket_name();
        let timeout = self.context.timing.register_timeout;
        let registration = register(&kubelet_path, &name, &self.resource, self.options, timeout);
        let obsolescence = wait_until_obsolete(
            self.socket_notifications.clone(),
            self.socket.as_ref(),
            (&kubelet_path, kubelet_socket_id),
            self.context.timing.poll_interval,
        );
        tokio::select! {
            result = registration => Some(result),
            // The call is cancelled, because the kubelet would try to connect to a removed socket
            // for 10 s.
            () = obsolescence => None,
        }
    }

    /// Marks the handover as ended. From now on, the kubelet notices when this instance ends.
    pub(super) fn confirm_registration(&mut self) {
        self.has_released_predecessor = false;
        self.handover_marker.remove();
    }
}

/// Waits until a registration in progress is obsolete, because this instance's socket or the
/// kubelet's socket was removed or replaced.
async fn wait_until_obsolete(
    mut socket_notifications: Notifications,
    socket: Option<&Socket>,
    (kubelet_path, kubelet_socket_id): (&Path, SocketId),
    poll_interval: Duration,
) {
    loop {
        let is_own_socket =
            socket.is_some_and(|socket| socket.path_state() == PathState::ServedByThisProcess);
        if !is_own_socket || SocketId::read(kubelet_path) != Some(kubelet_socket_id) {
            return;
        }
        let _ = tokio::time::timeout(poll_interval, socket_notifications.wait()).await;
    }
}

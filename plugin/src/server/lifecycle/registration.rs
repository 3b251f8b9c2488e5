//! Registers the resource with the kubelet.

use std::path::Path;
use std::time::Duration;

use host_inventory::{FaultLog, Notifications};
use tokio::time::Instant;

use super::super::instance::Predecessor;
use super::super::register;
use super::super::socket::{PathState, Socket, SocketId, remove_if_stale};
use super::Lifecycle;

/// The minimum age of a registration whose stream has ended for the next one to be made without a
/// delay.
const MIN_STREAM_TIME: Duration = Duration::from_secs(1);

impl Lifecycle {
    pub(super) async fn register(&mut self, kubelet: SocketId) {
        let registered = self.registered.take();
        let age = registered
            .filter(|(known, _)| *known == kubelet)
            .map(|(_, since)| since.elapsed());
        let again = age.is_some();
        if let Some(age) = age {
            self.explain_repetition();
            let streams = *self.stream_states.borrow();
            // If the kubelet never opens a stream that lasts, the delay between registrations
            // grows.
            if streams.open == 0 && !(streams.has_begun && age > MIN_STREAM_TIME) {
                self.pause().await;
            }
        }
        self.streams.start_registration();
        let Some(answer) = self.call_register(kubelet).await else {
            return;
        };
        let at = self.context.kubelet.kubelet_socket();
        self.context
            .metrics
            .count_registration(&self.resource, answer.is_ok());
        match answer {
            Ok(()) => {
                tracing::info!(resource = %self.resource, "registered at {}", at.display());
                self.registered = Some((kubelet, Instant::now()));
                self.fault = FaultLog::default();
                self.replaces_instance = false;
                self.confirm_registration();
                if let Some(Predecessor::Ended(_)) = self.predecessor {
                    self.predecessor = None;
                    // A killed predecessor left its socket behind.
                    remove_if_stale(&self.socket_path(self.slot.next_slot()));
                }
                if !again {
                    self.backoff.reset();
                }
            }
            Err(error) => {
                self.warn_once(format!("{error}; trying again"));
                self.pause().await;
            }
        }
    }

    /// Logs why the resource is registered again with the same kubelet.
    fn explain_repetition(&mut self) {
        let streams = *self.stream_states.borrow();
        match (streams.open, streams.has_begun) {
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

    /// Calls Register. Returns `None` if a socket disappeared during the call.
    pub(super) async fn call_register(&self, kubelet: SocketId) -> Option<anyhow::Result<()>> {
        let at = self.context.kubelet.kubelet_socket();
        let name = self.socket_name();
        let timeout = self.context.timing.register_timeout;
        let registering = register(&at, &name, &self.resource, self.options, timeout);
        let obsolete = wait_until_obsolete(
            self.socket_changes.clone(),
            self.socket.as_ref(),
            (&at, kubelet),
            self.context.timing.poll_interval,
        );
        tokio::select! {
            answer = registering => Some(answer),
            // Otherwise the kubelet would try to connect to a removed socket for 10 s.
            () = obsolete => None,
        }
    }

    /// Records that the kubelet will notice the end of this instance again.
    pub(super) fn confirm_registration(&mut self) {
        self.has_released = false;
        self.handover_mark.remove();
    }
}

/// Waits until a registration in progress is obsolete because the plugin's or the kubelet's socket
/// is gone.
async fn wait_until_obsolete(
    mut socket_changes: Notifications,
    socket: Option<&Socket>,
    (path, kubelet): (&Path, SocketId),
    poll: Duration,
) {
    loop {
        let ours = socket.is_some_and(|socket| socket.path_state() == PathState::OwnSocket);
        if !ours || SocketId::read(path) != Some(kubelet) {
            return;
        }
        let _ = tokio::time::timeout(poll, socket_changes.wait()).await;
    }
}

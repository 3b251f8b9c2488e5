//! Keeps a resource registered with the kubelet, and its socket at its path.
//!
//! ```text
//!            ┌──────── our socket is gone ────────┐
//!            ▼                                    │
//!   bind ──▶ wait for kubelet.sock ──▶ register ──▶ registered
//!                  ▲                     │   ▲        │
//!                  │                  failed └────────┤ kubelet.sock is another,
//!                  └── wait longer ◀─────┘            │ or ListAndWatch is closed
//! ```
//!
//! The diagram omits the handover between two instances of the plugin, which [`super::instance`]
//! describes.

mod binding;
mod handover;
mod registration;
mod yielding;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use daemon::host_inventory::{FaultLog, Notifications};
use device_class::name::ResourceName;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::handover_marker::HandoverMarker;
use super::instance::{Peer, Predecessor};
use super::next_step::{
    PredecessorState, RegistrationState, RegistrationStep, determine_next_step,
};
use super::pending_handovers::PendingHandoverGuard;
use super::socket::{PathState, Socket, SocketId};
use super::{Backoff, RegistrationMethod, ServerContext};
use crate::catalog::ScanPauseGuard;
use crate::kubelet_dir::{SocketSlot, socket_name};
use crate::service::{OptionsRefusal, RegistrationStreams, StreamCount};
use daemon::kubelet_api::deviceplugin::DevicePluginOptions;
pub(super) use handover::{
    DEVICE_REMOVAL_TIMEOUT, LAST_REGISTRATION_TIMEOUT, PREDECESSOR_RETURN_TIMEOUT,
};
use yielding::OtherPluginEvidence;

/// The delay after the first failure. It is short, because the kubelet may have created its socket
/// a moment ago and not listen yet.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Keeps one resource registered with the kubelet, and the plugin's socket for it at its path.
pub(super) struct Lifecycle {
    resource: ResourceName,
    options: DevicePluginOptions,
    context: ServerContext,
    slot: SocketSlot,
    socket: Option<Socket>,
    /// The kubelet's socket at which the resource was registered, and the time of the registration.
    /// A new socket means that the kubelet was started again.
    registration: Option<(SocketId, Instant)>,
    listener_sender: watch::Sender<Option<Arc<UnixListener>>>,
    stream_count: StreamCount,
    stream_states: watch::Receiver<RegistrationStreams>,
    refusal: OptionsRefusal,
    socket_notifications: Notifications,
    backoff: Backoff,
    fault_log: FaultLog,
    /// Whether another instance of the plugin served the resource when this one created its socket.
    has_earlier_instance: bool,
    predecessor: Option<Predecessor>,
    /// Counts this resource as a pending handover until the guard is dropped. The guard exists
    /// while the predecessor runs and the kubelet would still notice its end.
    pending_handover: Option<PendingHandoverGuard>,
    handover_marker: HandoverMarker,
    /// Whether this instance has made the kubelet ignore the end of the earlier instance, and has
    /// not registered since then. As long as that is so, the kubelet would not notice the end of
    /// this instance either.
    has_released_predecessor: bool,
    /// The newer instance that serves the resource in place of this one.
    successor: Option<Peer>,
    /// Pauses the device scans of this instance while a newer instance serves the resource.
    scan_pause: Option<ScanPauseGuard>,
    /// The time since which no ListAndWatch stream has been open. It is used only with
    /// [`RegistrationMethod::Watcher`].
    idle_start_time: Option<Instant>,
    other_plugin: Option<OtherPluginEvidence>,
}

impl Lifecycle {
    pub(super) fn new(
        (resource, options): (ResourceName, DevicePluginOptions),
        context: ServerContext,
        listener_sender: watch::Sender<Option<Arc<UnixListener>>>,
        (stream_count, refusal): (StreamCount, OptionsRefusal),
        socket_notifications: Notifications,
    ) -> Self {
        Lifecycle {
            slot: SocketSlot::First,
            handover_marker: HandoverMarker::new(
                &context.kubelet_dir.device_plugins_dir(),
                &resource,
            ),
            has_released_predecessor: false,
            resource,
            options,
            socket: None,
            registration: None,
            listener_sender,
            stream_states: stream_count.subscribe(),
            stream_count,
            refusal,
            socket_notifications,
            backoff: Backoff::new(FIRST_RETRY_DELAY, context.timing.max_retry_delay),
            context,
            fault_log: FaultLog::default(),
            has_earlier_instance: false,
            predecessor: None,
            pending_handover: None,
            successor: None,
            scan_pause: None,
            idle_start_time: None,
            other_plugin: None,
        }
    }

    pub(super) async fn run(&mut self) {
        loop {
            let step = determine_next_step(self.read_state().await, &self.context.timing);
            let must_register = match (step, self.context.registration_method) {
                (RegistrationStep::Register(_), _)
                | (RegistrationStep::Bind, RegistrationMethod::Watcher) => true,
                (RegistrationStep::Bind, RegistrationMethod::Kubelet)
                | (RegistrationStep::ReleasePredecessor(_) | RegistrationStep::Wait(_), _) => false,
            };
            if must_register && self.detect_other_plugin().await {
                self.yield_resource().await;
                continue;
            }
            match step {
                RegistrationStep::Bind => self.bind().await,
                RegistrationStep::Register(kubelet) => self.register(kubelet).await,
                RegistrationStep::ReleasePredecessor(kubelet) => {
                    self.send_failing_registration(kubelet).await
                }
                RegistrationStep::Wait(max_duration) => self.wait_for_change(max_duration).await,
            }
        }
    }

    async fn read_state(&mut self) -> RegistrationState {
        // Notifications that arrived until now are discarded, because the state that is read next
        // already includes their changes.
        self.socket_notifications.clear();
        let mut path_state = self.socket.as_ref().map(Socket::path_state);
        if path_state == Some(PathState::ServedByThisProcess) && self.detect_successor().await {
            path_state = Some(PathState::ServedByOtherProcess);
            // This instance must register again when the successor ends, because the kubelet does
            // not return to this instance on its own.
            self.registration = None;
            // The newer instance is responsible for the handover from now on.
            self.has_released_predecessor = false;
        }
        if path_state != Some(PathState::ServedByOtherProcess) {
            self.scan_pause = None;
        } else if self.scan_pause.is_none() {
            tracing::info!(resource = %self.resource, "a newer boathook-plugin serves");
            self.scan_pause = Some(self.context.scan_pause.add_replaced_server());
        }
        let streams = *self.stream_states.borrow_and_update();
        if self.context.registration_method == RegistrationMethod::Kubelet || streams.open_count > 0
        {
            self.idle_start_time = None;
        } else {
            self.idle_start_time.get_or_insert_with(Instant::now);
        }
        let predecessor = match &self.predecessor {
            Some(Predecessor::Running {
                is_released: false, ..
            }) => PredecessorState::ReleaseNeeded,
            Some(Predecessor::Ended(time)) => PredecessorState::EndedAfterRelease(time.elapsed()),
            _ => PredecessorState::NoReleaseNeeded,
        };
        if predecessor != PredecessorState::ReleaseNeeded {
            self.pending_handover = None;
        } else if self.pending_handover.is_none() {
            self.pending_handover = Some(self.context.pending_handovers.add());
        }
        RegistrationState {
            path_state,
            idle_duration: self.idle_start_time.map(|start| start.elapsed()),
            kubelet_socket: match self.context.registration_method {
                RegistrationMethod::Kubelet => {
                    SocketId::read(&self.context.kubelet_dir.kubelet_socket_path())
                }
                RegistrationMethod::Watcher => None,
            },
            registration: self.registration.map(|(id, time)| (id, time.elapsed())),
            streams,
            predecessor,
        }
    }

    fn socket_directory(&self) -> PathBuf {
        match self.context.registration_method {
            RegistrationMethod::Kubelet => self.context.kubelet_dir.device_plugins_dir(),
            RegistrationMethod::Watcher => self.context.kubelet_dir.plugins_registry_dir(),
        }
    }

    fn socket_name(&self) -> String {
        socket_name(&self.resource, self.slot)
    }

    fn socket_path(&self, slot: SocketSlot) -> PathBuf {
        self.socket_directory()
            .join(socket_name(&self.resource, slot))
    }

    /// Waits before the next attempt after a failure. The waiting time grows with each failure. A
    /// change in the directory of the kubelet's sockets ends the wait early.
    async fn wait_after_failure(&mut self) {
        let delay = self.backoff.next_delay();
        let _ = tokio::time::timeout(delay, self.socket_notifications.wait()).await;
    }

    async fn wait_for_change(&mut self, max_duration: Duration) {
        let predecessor_end = async {
            match &self.predecessor {
                Some(Predecessor::Running { peer, .. }) => peer.wait_for_end().await,
                _ => std::future::pending().await,
            }
        };
        let successor_end = async {
            match &self.successor {
                Some(peer) => peer.wait_for_end().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(max_duration) => {}
            () = self.socket_notifications.wait() => {}
            Ok(()) = self.stream_states.changed() => {}
            () = successor_end => {
                tracing::info!(resource = %self.resource, "the newer boathook-plugin has ended");
                self.successor = None;
            }
            () = predecessor_end => {
                self.predecessor = match self.predecessor {
                    Some(Predecessor::Running { is_released: true, .. }) => {
                        Some(Predecessor::Ended(Instant::now()))
                    }
                    _ => None,
                };
            }
        }
    }

    fn warn_once(&mut self, message: String) {
        let resource = &self.resource;
        self.fault_log
            .report_faults([message], |message| tracing::warn!(%resource, "{message}"));
    }
}

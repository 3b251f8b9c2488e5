//! Keeps the socket of a resource in place and registered with the kubelet.
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
//! The diagram omits the handover between two instances of the plugin: see [`super::instance`].

mod binding;
mod handover;
mod registration;
mod yielding;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use device_class::name::ResourceName;
use host_inventory::{FaultLog, Notifications};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::handover_mark::HandoverMark;
use super::instance::{Peer, Predecessor};
use super::next_step::{PredecessorState, RegistrationState, RegistrationStep, next_step};
use super::socket::{PathState, Socket, SocketId};
use super::{Backoff, Context, RegisterBy};
use crate::catalog::ScanPauseGuard;
use crate::kubelet_dir::{SocketSlot, socket_name};
use crate::service::{OptionsRefusal, RegistrationStreams, StreamCount};
pub(super) use handover::{LAST_REGISTRATION_TIMEOUT, RETURN_TIMEOUT};
use kubelet_api::deviceplugin::DevicePluginOptions;
use yielding::OtherPlugin;

/// The first delay after a failure. It is short, because the kubelet may just have created its
/// socket without listening yet.
const FIRST_RETRY: Duration = Duration::from_millis(10);

/// The state of one resource's registration.
pub(super) struct Lifecycle {
    resource: ResourceName,
    options: DevicePluginOptions,
    context: Context,
    slot: SocketSlot,
    socket: Option<Socket>,
    /// The kubelet's socket at which the resource is registered, and the time of the registration.
    registered: Option<(SocketId, Instant)>,
    listener: watch::Sender<Option<Arc<UnixListener>>>,
    streams: StreamCount,
    stream_states: watch::Receiver<RegistrationStreams>,
    refusal: OptionsRefusal,
    socket_changes: Notifications,
    backoff: Backoff,
    fault: FaultLog,
    /// Whether another instance served the resource when this socket was created.
    replaces_instance: bool,
    predecessor: Option<Predecessor>,
    handover_mark: HandoverMark,
    /// Whether this instance has released its predecessor and has not registered since, so that
    /// the kubelet would not notice the end of this instance.
    has_released: bool,
    /// The newer instance that serves the resource.
    successor: Option<Peer>,
    /// Pauses the scans while a newer instance serves.
    pause: Option<ScanPauseGuard>,
    /// The time since which no stream is open. It is used only if the kubelet's plugin watcher
    /// finds the socket.
    idle_since: Option<Instant>,
    other_plugin: Option<OtherPlugin>,
}

impl Lifecycle {
    pub(super) fn new(
        (resource, options): (ResourceName, DevicePluginOptions),
        context: Context,
        listener: watch::Sender<Option<Arc<UnixListener>>>,
        (streams, refusal): (StreamCount, OptionsRefusal),
        socket_changes: Notifications,
    ) -> Self {
        Lifecycle {
            slot: SocketSlot::First,
            handover_mark: HandoverMark::new(&context.kubelet.device_plugins(), &resource),
            has_released: false,
            resource,
            options,
            socket: None,
            registered: None,
            listener,
            stream_states: streams.subscribe(),
            streams,
            refusal,
            socket_changes,
            backoff: Backoff::new(FIRST_RETRY, context.timing.max_retry_delay),
            context,
            fault: FaultLog::default(),
            replaces_instance: false,
            predecessor: None,
            successor: None,
            pause: None,
            idle_since: None,
            other_plugin: None,
        }
    }

    pub(super) async fn run(&mut self) {
        loop {
            let step = next_step(self.read_state().await, &self.context.timing);
            let registers = match (step, self.context.register_by) {
                (RegistrationStep::Register(_), _)
                | (RegistrationStep::Bind, RegisterBy::Watcher) => true,
                (RegistrationStep::Bind, RegisterBy::Kubelet)
                | (RegistrationStep::ReleasePredecessor(_) | RegistrationStep::Wait(_), _) => false,
            };
            if registers && self.is_served_by_other_plugin().await {
                self.yield_resource().await;
                continue;
            }
            match step {
                RegistrationStep::Bind => self.bind().await,
                RegistrationStep::Register(kubelet) => self.register(kubelet).await,
                RegistrationStep::ReleasePredecessor(kubelet) => {
                    self.release_predecessor(kubelet).await
                }
                RegistrationStep::Wait(longest) => self.wait(longest).await,
            }
        }
    }

    async fn read_state(&mut self) -> RegistrationState {
        // The state that is read below includes all changes until now.
        self.socket_changes.clear();
        let mut path_state = self.socket.as_ref().map(Socket::path_state);
        if path_state == Some(PathState::OwnSocket) && self.has_successor().await {
            path_state = Some(PathState::OtherSocket);
            // The kubelet does not call this instance again by itself when the successor ends.
            self.registered = None;
            // The newer instance is now responsible for the handover.
            self.has_released = false;
        }
        if path_state != Some(PathState::OtherSocket) {
            self.pause = None;
        } else if self.pause.is_none() {
            tracing::info!(resource = %self.resource, "a newer boathook-plugin serves");
            self.pause = Some(self.context.pause.start());
        }
        let streams = *self.stream_states.borrow_and_update();
        if self.context.register_by == RegisterBy::Kubelet || streams.open > 0 {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert_with(Instant::now);
        }
        RegistrationState {
            socket: path_state,
            idle: self.idle_since.map(|since| since.elapsed()),
            kubelet: match self.context.register_by {
                RegisterBy::Kubelet => SocketId::read(&self.context.kubelet.kubelet_socket()),
                RegisterBy::Watcher => None,
            },
            registered: self.registered.map(|(id, since)| (id, since.elapsed())),
            streams,
            predecessor: match &self.predecessor {
                Some(Predecessor::Running {
                    is_released: false, ..
                }) => PredecessorState::StillKnown,
                Some(Predecessor::Ended(since)) => PredecessorState::Ended(since.elapsed()),
                _ => PredecessorState::AbsentOrReleased,
            },
        }
    }

    fn socket_directory(&self) -> PathBuf {
        match self.context.register_by {
            RegisterBy::Kubelet => self.context.kubelet.device_plugins(),
            RegisterBy::Watcher => self.context.kubelet.plugins_registry(),
        }
    }

    /// Returns the name of this instance's socket.
    fn socket_name(&self) -> String {
        socket_name(&self.resource, self.slot)
    }

    fn socket_path(&self, slot: SocketSlot) -> PathBuf {
        self.socket_directory()
            .join(socket_name(&self.resource, slot))
    }

    /// Waits after a failure. A change in the kubelet's directory ends the wait early.
    async fn pause(&mut self) {
        let wait = self.backoff.next_wait();
        let _ = tokio::time::timeout(wait, self.socket_changes.wait()).await;
    }

    async fn wait(&mut self, longest: Duration) {
        let predecessor = async {
            match &self.predecessor {
                Some(Predecessor::Running { peer, .. }) => peer.wait_for_end().await,
                _ => std::future::pending().await,
            }
        };
        let successor = async {
            match &self.successor {
                Some(peer) => peer.wait_for_end().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(longest) => {}
            () = self.socket_changes.wait() => {}
            Ok(()) = self.stream_states.changed() => {}
            () = successor => {
                tracing::info!(resource = %self.resource, "the newer boathook-plugin has ended");
                self.successor = None;
            }
            () = predecessor => {
                self.predecessor = match self.predecessor {
                    Some(Predecessor::Running { is_released: true, .. }) => {
                        Some(Predecessor::Ended(Instant::now()))
                    }
                    _ => None,
                };
            }
        }
    }

    fn warn_once(&mut self, what: String) {
        let resource = &self.resource;
        self.fault
            .report([what], |what| tracing::warn!(%resource, "{what}"));
    }
}

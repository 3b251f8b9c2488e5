//! Keeps a resource's socket in place and registered with the kubelet.
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
//! The diagram leaves out the handover between two instances of the plugin: see [`super::instance`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device_class::name::ResourceName;
use host_inventory::{Faults, Notifications};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::handover_mark::HandoverMark;
use super::instance::{Peer, Predecessor};
use super::next_step::{PredecessorState, Situation, Step, next_step};
use super::other_plugin::{YieldedResource, has_devices};
use super::socket::{Presence, Socket, SocketId, is_served, modification_time, remove_if_stale};
use super::{Backoff, Context, RegisterBy, register};
use crate::catalog::ScanPauseGuard;
use crate::kubelet_dir::{SocketSlot, socket_name};
use crate::service::{OptionsRefusal, RegistrationStreams, StreamCount};
use kubelet_api::deviceplugin::DevicePluginOptions;

/// The first delay after a failure. It is short, because the kubelet may have created its
/// socket and not listen at it yet.
const FIRST_RETRY: Duration = Duration::from_millis(10);

/// The delay before another plugin is assumed to serve the resource. A stream of this plugin
/// may have just ended.
const CONFIRM: Duration = Duration::from_millis(300);

/// The time after which a registration whose stream ends is repeated without a delay.
const STABLE: Duration = Duration::from_secs(1);

/// The time limit of the registration with which an instance ends that has detached the kubelet.
const LAST_REGISTRATION: Duration = Duration::from_millis(400);

/// The state of one resource's registration.
pub(super) struct Lifecycle {
    resource: ResourceName,
    options: DevicePluginOptions,
    context: Context,
    slot: SocketSlot,
    socket: Option<Socket>,
    /// The kubelet's socket at which the resource is registered, and the time of the
    /// registration.
    registered: Option<(SocketId, Instant)>,
    listener: watch::Sender<Option<Arc<UnixListener>>>,
    streams: StreamCount,
    listening: watch::Receiver<RegistrationStreams>,
    refusal: OptionsRefusal,
    socket_changes: Notifications,
    backoff: Backoff,
    fault: Faults,
    /// Whether another boathook-plugin served the resource when this socket was created.
    succeeds: bool,
    predecessor: Option<Predecessor>,
    handover_mark: HandoverMark,
    /// Whether this instance let the kubelet forget whose end it waits for, and has not registered
    /// since.
    has_detached: bool,
    /// A newer instance, which serves the resource.
    successor: Option<Peer>,
    /// The pause of the scans while a newer instance serves.
    pause: Option<ScanPauseGuard>,
    /// The time since which no kubelet has a stream, if its plugin watcher finds the plugin.
    idle_since: Option<Instant>,
    other: Option<Other>,
}

/// Another plugin that serves the resource.
enum Other {
    Suspected,
    /// The other plugin serves the resource, which is left to it.
    Found(#[allow(dead_code, reason = "a guard")] YieldedResource),
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
            has_detached: false,
            resource,
            options,
            socket: None,
            registered: None,
            listener,
            listening: streams.subscribe(),
            streams,
            refusal,
            socket_changes,
            backoff: Backoff::new(FIRST_RETRY, context.timing.retry),
            context,
            fault: Faults::default(),
            succeeds: false,
            predecessor: None,
            successor: None,
            pause: None,
            idle_since: None,
            other: None,
        }
    }

    pub(super) async fn run(&mut self) {
        loop {
            let step = next_step(self.situation().await, &self.context.timing);
            let registers = match (step, self.context.register_by) {
                (Step::Register(_), _) | (Step::Bind, RegisterBy::Watcher) => true,
                (Step::Bind, RegisterBy::Kubelet) | (Step::Detach(_) | Step::Wait(_), _) => false,
            };
            if registers && self.another_serves().await {
                self.leave_to_it().await;
                continue;
            }
            match step {
                Step::Bind => self.bind().await,
                Step::Register(kubelet) => self.register(kubelet).await,
                Step::Detach(kubelet) => self.detach_predecessor(kubelet).await,
                Step::Wait(longest) => self.wait(longest).await,
            }
        }
    }

    async fn situation(&mut self) -> Situation {
        // Changes until now are seen below.
        self.socket_changes.clear();
        let mut presence = self.socket.as_ref().map(Socket::presence);
        if presence == Some(Presence::Ours) && self.has_successor().await {
            presence = Some(Presence::Taken);
            // If the successor ends, the kubelet does not return to this instance by itself.
            self.registered = None;
            // The handover is now that of the newer instance.
            self.has_detached = false;
        }
        if presence != Some(Presence::Taken) {
            self.pause = None;
        } else if self.pause.is_none() {
            tracing::info!(resource = %self.resource, "a newer boathook-plugin serves");
            self.pause = Some(self.context.pause.start());
        }
        let streams = *self.listening.borrow_and_update();
        if self.context.register_by == RegisterBy::Kubelet || streams.open > 0 {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert_with(Instant::now);
        }
        Situation {
            socket: presence,
            idle: self.idle_since.map(|since| since.elapsed()),
            kubelet: match self.context.register_by {
                RegisterBy::Kubelet => SocketId::read(&self.context.kubelet.kubelet_socket()),
                RegisterBy::Watcher => None,
            },
            registered: self.registered.map(|(id, since)| (id, since.elapsed())),
            streams,
            predecessor: match &self.predecessor {
                Some(Predecessor::Running {
                    is_detached: false, ..
                }) => PredecessorState::Attached,
                Some(Predecessor::Ended(since)) => PredecessorState::Ended(since.elapsed()),
                _ => PredecessorState::Harmless,
            },
        }
    }

    /// Returns whether an instance with a newer socket serves the resource.
    async fn has_successor(&mut self) -> bool {
        if self.context.register_by == RegisterBy::Watcher {
            return false;
        }
        let other = self.slot.next_slot();
        let age = |slot| modification_time(&self.path(slot)).map(|time| (time, slot));
        let is_newer = age(other) > age(self.slot);
        let path = self.path(other);
        if !is_newer {
            self.successor = None;
        } else if self.successor.is_none() {
            self.successor = Peer::connect(&path).await;
            if self.successor.is_none() {
                remove_if_stale(&path);
            }
        }
        self.successor.is_some()
    }

    fn directory(&self) -> PathBuf {
        match self.context.register_by {
            RegisterBy::Kubelet => self.context.kubelet.device_plugins(),
            RegisterBy::Watcher => self.context.kubelet.plugins_registry(),
        }
    }

    fn path(&self, slot: SocketSlot) -> PathBuf {
        self.directory().join(socket_name(&self.resource, slot))
    }

    /// Returns whether the kubelet has devices of the resource from another plugin.
    async fn another_serves(&mut self) -> bool {
        let is_listed = self.streams.open() > 0;
        let succeeds = self.succeeds || self.socket.is_none() && is_served(&self.path(self.slot));
        // During a handover the kubelet keeps the devices of instances that have ended.
        let continues = succeeds || self.handover_mark.exists();
        if self.context.take_over || is_listed || continues {
            self.other = None;
            return false;
        }
        let socket = self.context.kubelet.pod_resources_socket();
        if has_devices(&socket, &self.resource).await == Some(true) {
            return true;
        }
        if let Some(Other::Found(_)) = self.other.take() {
            tracing::info!(resource = %self.resource, "the other plugin is gone, registering");
        }
        false
    }

    /// Leaves the resource to the plugin that serves it, until that plugin ends.
    async fn leave_to_it(&mut self) {
        if self.other.is_none() {
            self.other = Some(Other::Suspected);
            tokio::time::sleep(CONFIRM).await;
            return;
        }
        if let Some(Other::Suspected) = self.other {
            let left = self.context.left.leave(self.resource.clone());
            self.other = Some(Other::Found(left));
        }
        self.warn_once(
            "another plugin serves this resource, so it is not registered until that one ends; \
             disable the class, or take the resource over with --take-over"
                .to_owned(),
        );
        self.wait(self.context.timing.poll).await;
    }

    /// A new socket is a new address: it must be registered.
    async fn bind(&mut self) {
        self.registered = None;
        self.idle_since = None;
        let newest_peer = match self.context.register_by {
            RegisterBy::Kubelet => self.choose_slot().await,
            // The plugin watcher knows a plugin by its path, which therefore stays the same.
            RegisterBy::Watcher => {
                self.succeeds = is_served(&self.path(self.slot));
                self.streams.start_registration();
                None
            }
        };
        match Socket::bind(self.path(self.slot), newest_peer) {
            Ok(socket) => {
                self.listener.send_replace(Some(socket.listener()));
                self.socket = Some(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.directory();
                self.warn_once(format!(
                    "waiting for the kubelet to create {}",
                    directory.display()
                ));
                self.wait(self.context.timing.poll).await;
            }
            Err(error) => {
                self.warn_once(format!(
                    "cannot listen at {}: {error}",
                    self.path(self.slot).display()
                ));
                self.pause().await;
            }
        }
    }

    /// Chooses the name of the socket: one that no other instance serves, or the older one.
    /// Returns the modification time of the newest socket of another instance.
    async fn choose_slot(&mut self) -> Option<Duration> {
        let [first, second] = [SocketSlot::First, SocketSlot::Second];
        let (one, two) = (self.path(first), self.path(second));
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
        self.succeeds = peer.is_some();
        self.successor = None;
        self.predecessor = peer.map(|peer| Predecessor::Running {
            peer,
            is_detached: false,
        });
        times.into_iter().max().flatten()
    }

    async fn register(&mut self, kubelet: SocketId) {
        let registered = self.registered.take();
        let age = registered
            .filter(|(known, _)| *known == kubelet)
            .map(|(_, since)| since.elapsed());
        let again = age.is_some();
        if let Some(age) = age {
            self.explain_repetition();
            let streams = *self.listening.borrow();
            // Without a stream for a moment at least there are growing delays, in case that the
            // kubelet never opens one that lasts.
            if streams.open == 0 && !(streams.has_begun && age > STABLE) {
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
            .registered(&self.resource, answer.is_ok());
        match answer {
            Ok(()) => {
                tracing::info!(resource = %self.resource, "registered at {}", at.display());
                self.registered = Some((kubelet, Instant::now()));
                self.fault = Faults::default();
                self.succeeds = false;
                self.confirm_registration();
                if let Some(Predecessor::Ended(_)) = self.predecessor {
                    self.predecessor = None;
                    // A killed instance leaves its socket.
                    remove_if_stale(&self.path(self.slot.next_slot()));
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
        let streams = *self.listening.borrow();
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

    /// Calls Register. Returns `None` if the call became obsolete meanwhile.
    async fn call_register(&self, kubelet: SocketId) -> Option<anyhow::Result<()>> {
        let at = self.context.kubelet.kubelet_socket();
        let name = socket_name(&self.resource, self.slot);
        let timeout = self.context.timing.register;
        let asking = register(&at, &name, &self.resource, self.options, timeout);
        let overtaken = overtaken(
            self.socket_changes.clone(),
            self.socket.as_ref(),
            (&at, kubelet),
            self.context.timing.poll,
        );
        tokio::select! {
            answer = asking => Some(answer),
            // The kubelet would dial a removed socket for 10 s.
            () = overtaken => None,
        }
    }

    /// Lets the kubelet forget whose end it waits for, by a registration that fails.
    async fn detach_predecessor(&mut self, kubelet: SocketId) {
        if let Err(error) = self.handover_mark.create() {
            let path = self.handover_mark.path().display();
            self.warn_once(format!(
                "cannot create {path}: {error}; if this instance is killed before the earlier one \
                 ends, the next one does not register before the kubelet restarts"
            ));
        }
        self.has_detached = true;
        self.refusal.start();
        let answer = self.call_register(kubelet).await;
        let was_refused = self.refusal.end();
        if !was_refused && !matches!(answer, Some(Ok(()))) {
            self.pause().await;
            return;
        }
        if let Some(Predecessor::Running { is_detached, .. }) = &mut self.predecessor {
            *is_detached = true;
        }
        tracing::info!(
            resource = %self.resource,
            "serving in place of an earlier boathook-plugin, which may end now"
        );
    }

    /// The kubelet waits for the end of this instance again.
    fn confirm_registration(&mut self) {
        self.has_detached = false;
        self.handover_mark.remove();
    }

    /// Registers once more before this instance ends, if the kubelet would not notice its end
    /// otherwise.
    pub(super) async fn end_handover(&mut self) {
        if !self.has_detached {
            return;
        }
        // The end may have interrupted the registration that fails.
        self.refusal.end();
        let Some(kubelet) = SocketId::read(&self.context.kubelet.kubelet_socket()) else {
            return;
        };
        let registering = self.call_register(kubelet);
        match tokio::time::timeout(LAST_REGISTRATION, registering).await {
            Ok(Some(Ok(()))) => self.confirm_registration(),
            // The mark stays for the next instance.
            _ => tracing::warn!(
                resource = %self.resource,
                "ending during a handover, which the kubelet does not notice before the next \
                 boathook-plugin starts or it calls this one"
            ),
        }
    }

    /// Waits after a failure. A change in the kubelet's directory ends the wait.
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
            Ok(()) = self.listening.changed() => {}
            () = successor => {
                tracing::info!(resource = %self.resource, "the newer boathook-plugin has ended");
                self.successor = None;
            }
            () = predecessor => {
                self.predecessor = match self.predecessor {
                    Some(Predecessor::Running { is_detached: true, .. }) => {
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

/// Waits until a registration in progress is obsolete: our socket is gone, or
/// the kubelet's.
async fn overtaken(
    mut socket_changes: Notifications,
    socket: Option<&Socket>,
    (path, kubelet): (&Path, SocketId),
    poll: Duration,
) {
    loop {
        let ours = socket.is_some_and(|socket| socket.presence() == Presence::Ours);
        if !ours || SocketId::read(path) != Some(kubelet) {
            return;
        }
        let _ = tokio::time::timeout(poll, socket_changes.wait()).await;
    }
}

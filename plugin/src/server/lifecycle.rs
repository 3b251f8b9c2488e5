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

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device_class::name::ResourceName;
use host_inventory::{Faults, Notifications};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::other_plugin::{YieldedResource, has_devices};
use super::socket::{Presence, Socket, SocketId, is_served};
use super::{Backoff, Context, RegisterBy, Timing, register};
use crate::kubelet_dir::socket_name;
use kubelet_api::deviceplugin::DevicePluginOptions;

/// The first delay after a failure. It is short, because the kubelet may have created its
/// socket and not listen at it yet.
const FIRST_RETRY: Duration = Duration::from_millis(10);

/// The delay before another plugin is assumed to serve the resource. A stream of this plugin
/// may have just ended.
const CONFIRM: Duration = Duration::from_millis(300);

/// The state of one resource's registration.
pub(super) struct Lifecycle {
    resource: ResourceName,
    options: DevicePluginOptions,
    context: Context,
    socket_name: String,
    socket: Option<Socket>,
    /// The kubelet's socket at which the resource is registered, and the time of the
    /// registration.
    registered: Option<(SocketId, Instant)>,
    listener: watch::Sender<Option<Arc<UnixListener>>>,
    listening: watch::Receiver<usize>,
    socket_changes: Notifications,
    backoff: Backoff,
    fault: Faults,
    /// Whether another boathook-plugin served the resource when this socket was created.
    succeeds: bool,
    other: Option<Other>,
}

/// Another plugin that serves the resource.
enum Other {
    Suspected,
    /// The other plugin serves the resource, which is left to it.
    Found(#[allow(dead_code, reason = "a guard")] YieldedResource),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Bind,
    /// Register with the kubelet at this socket.
    Register(SocketId),
    /// Wait for a change, for at most this time.
    Wait(Duration),
}

/// The state that determines the next step.
#[derive(Debug, Clone, Copy)]
struct Situation {
    /// The state of the plugin's socket, if it has one.
    socket: Option<Presence>,
    /// The kubelet's socket, if the resource is registered by a call at that socket.
    kubelet: Option<SocketId>,
    /// The kubelet's socket at which the resource is registered, and for how long.
    registered: Option<(SocketId, Duration)>,
    /// The number of open ListAndWatch streams.
    listeners: usize,
}

fn next_step(now: Situation, timing: &Timing) -> Step {
    match (now.socket, now.kubelet, now.registered) {
        (None | Some(Presence::Free), ..) => Step::Bind,
        // A newer boathook-plugin serves the resource.
        (Some(Presence::Taken), ..) => Step::Wait(timing.poll),
        (_, None, _) => Step::Wait(timing.poll),
        (_, Some(kubelet), None) => Step::Register(kubelet),
        (_, Some(kubelet), Some((known, _))) if kubelet != known => Step::Register(kubelet),
        (_, Some(kubelet), Some((_, ago))) if now.listeners == 0 => {
            match timing.listen.checked_sub(ago) {
                Some(left) if !left.is_zero() => Step::Wait(left),
                _ => Step::Register(kubelet),
            }
        }
        _ => Step::Wait(timing.poll),
    }
}

impl Lifecycle {
    pub(super) fn new(
        (resource, options): (ResourceName, DevicePluginOptions),
        context: Context,
        listener: watch::Sender<Option<Arc<UnixListener>>>,
        listening: watch::Receiver<usize>,
        socket_changes: Notifications,
    ) -> Self {
        Lifecycle {
            socket_name: socket_name(&resource),
            resource,
            options,
            socket: None,
            registered: None,
            listener,
            listening,
            socket_changes,
            backoff: Backoff::new(FIRST_RETRY, context.timing.retry),
            context,
            fault: Faults::default(),
            succeeds: false,
            other: None,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let step = next_step(self.situation(), &self.context.timing);
            let registers = match (step, self.context.register_by) {
                (Step::Register(_), _) | (Step::Bind, RegisterBy::Watcher) => true,
                (Step::Bind, RegisterBy::Kubelet) | (Step::Wait(_), _) => false,
            };
            if registers && self.another_serves().await {
                self.leave_to_it().await;
                continue;
            }
            match step {
                Step::Bind => self.bind().await,
                Step::Register(kubelet) => self.register(kubelet).await,
                Step::Wait(longest) => self.wait(longest).await,
            }
        }
    }

    fn situation(&mut self) -> Situation {
        // Changes until now are seen below.
        self.socket_changes.clear();
        Situation {
            socket: self.socket.as_ref().map(Socket::presence),
            kubelet: match self.context.register_by {
                RegisterBy::Kubelet => SocketId::read(&self.context.kubelet.kubelet_socket()),
                RegisterBy::Watcher => None,
            },
            registered: self.registered.map(|(id, since)| (id, since.elapsed())),
            listeners: *self.listening.borrow_and_update(),
        }
    }

    fn directory(&self) -> PathBuf {
        match self.context.register_by {
            RegisterBy::Kubelet => self.context.kubelet.device_plugins(),
            RegisterBy::Watcher => self.context.kubelet.plugins_registry(),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory().join(&self.socket_name)
    }

    /// Returns whether the kubelet has devices of the resource from another plugin.
    async fn another_serves(&mut self) -> bool {
        let is_listed = *self.listening.borrow() > 0;
        let succeeds = self.succeeds || self.socket.is_none() && is_served(&self.path());
        if self.context.take_over || is_listed || succeeds {
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
        self.succeeds = is_served(&self.path());
        match Socket::bind(self.path()) {
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
                    self.path().display()
                ));
                self.pause().await;
            }
        }
    }

    async fn register(&mut self, kubelet: SocketId) {
        let again = self
            .registered
            .take()
            .is_some_and(|(known, _)| known == kubelet);
        if again {
            self.warn_once("the kubelet has not called ListAndWatch; registering again".to_owned());
            // With growing delays, in case the kubelet never does.
            self.pause().await;
        }
        let at = self.context.kubelet.kubelet_socket();
        let (resource, timeout) = (self.resource.clone(), self.context.timing.register);
        let asking = register(&at, &self.socket_name, &resource, self.options, timeout);
        let overtaken = overtaken(
            self.socket_changes.clone(),
            self.socket.as_ref(),
            (&at, kubelet),
            self.context.timing.poll,
        );
        let answer = tokio::select! {
            answer = asking => answer,
            // The kubelet would dial a removed socket for 10 s.
            () = overtaken => return,
        };
        self.context
            .metrics
            .registered(&self.resource, answer.is_ok());
        match answer {
            Ok(()) => {
                tracing::info!(resource = %self.resource, "registered at {}", at.display());
                self.registered = Some((kubelet, Instant::now()));
                self.fault = Faults::default();
                self.succeeds = false;
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

    /// Waits after a failure. A change in the kubelet's directory ends the wait.
    async fn pause(&mut self) {
        let wait = self.backoff.next_wait();
        let _ = tokio::time::timeout(wait, self.socket_changes.wait()).await;
    }

    async fn wait(&mut self, longest: Duration) {
        tokio::select! {
            () = tokio::time::sleep(longest) => {}
            () = self.socket_changes.wait() => {}
            Ok(()) = self.listening.changed() => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_situation_has_its_step() {
        let directory = tempfile::tempdir().unwrap();
        let socket = |name: &str| Socket::bind(directory.path().join(name)).unwrap();
        let (_old, _new) = (socket("old"), socket("new"));
        let id = |name: &str| SocketId::read(&directory.path().join(name));
        let (old, new) = (id("old").unwrap(), id("new").unwrap());
        let timing = Timing::default();
        let (poll, moment) = (timing.poll, Duration::from_secs(1));
        let [ours, taken, free] = [Presence::Ours, Presence::Taken, Presence::Free].map(Some);
        let listen_on = Step::Wait(timing.listen - moment);
        let too_late = Some((new, timing.listen));
        for (socket, kubelet, registered, listeners, wanted) in [
            (None, None, None, 0, Step::Bind),
            (None, Some(new), None, 0, Step::Bind),
            (ours, None, None, 0, Step::Wait(poll)),
            (ours, Some(new), None, 0, Step::Register(new)),
            (ours, Some(new), Some((new, moment)), 1, Step::Wait(poll)),
            (ours, Some(new), Some((new, moment)), 0, listen_on),
            (ours, Some(new), too_late, 0, Step::Register(new)),
            (ours, Some(new), Some((old, moment)), 1, Step::Register(new)),
            (ours, None, Some((old, moment)), 1, Step::Wait(poll)),
            (free, Some(new), Some((new, moment)), 1, Step::Bind),
            (taken, Some(new), Some((new, moment)), 1, Step::Wait(poll)),
        ] {
            let now = Situation {
                socket,
                kubelet,
                registered,
                listeners,
            };
            assert_eq!(next_step(now, &timing), wanted, "{now:?}");
        }
    }
}

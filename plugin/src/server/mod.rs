//! Serves one resource. Two tasks, one for the gRPC server and one for the registration, start and
//! end together.

mod backoff;
mod handover_mark;
mod instance;
mod lifecycle;
mod next_step;
mod other_plugin;
mod register;
mod socket;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use backoff::Backoff;
pub(crate) use other_plugin::YieldedResources;
use register::register;
pub(crate) use socket::remove_stale_sockets;

use crate::catalog::{Resource, ScanPause};
use crate::holders::AllocationReports;
use crate::kubelet_dir::KubeletDir;
use crate::metrics::Metrics;
use crate::service::{OptionsRefusal, PluginInfoService, Service, Streams, supported_options};
use host_inventory::{FaultLog, Notifications};
use kubelet_api::WatcherStream;
use kubelet_api::deviceplugin::device_plugin_server::DevicePluginServer;
use kubelet_api::pluginregistration::registration_server::RegistrationServer;
use lifecycle::{LAST_REGISTRATION_TIMEOUT, Lifecycle, RETURN_TIMEOUT};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RegisterBy {
    /// Call Register at kubelet.sock
    Kubelet,
    /// Put the sockets into plugins_registry, for the kubelet's plugin watcher
    Watcher,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// The time limit of a Register call. Before the kubelet answers, it connects to the plugin
    /// for up to 10 seconds.
    pub(crate) register_timeout: Duration,
    /// The interval at which the sockets are checked if no event arrives.
    pub(crate) poll_interval: Duration,
    /// The time to wait for ListAndWatch after a registration before registering again.
    pub(crate) stream_timeout: Duration,
    /// The maximum delay between two attempts.
    pub(crate) max_retry_delay: Duration,
    /// The time between the end of a predecessor and the registration after it. The kubelet must
    /// notice the end before.
    pub(crate) end_notice_delay: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            register_timeout: Duration::from_secs(15),
            poll_interval: Duration::from_secs(10),
            stream_timeout: Duration::from_secs(5),
            max_retry_delay: Duration::from_secs(10),
            end_notice_delay: Duration::from_secs(2),
        }
    }
}

const SERVER_ENDED: &str = "the gRPC server ended";

/// The time limit for connected clients to close their connections when a server ends.
const CLIENT_END_TIMEOUT: Duration = Duration::from_millis(700);

/// The time limit for the end of a server. Only a handover takes longer than [`CLIENT_END_TIMEOUT`].
pub(crate) const END_TIMEOUT: Duration = RETURN_TIMEOUT
    .saturating_add(LAST_REGISTRATION_TIMEOUT)
    .saturating_add(CLIENT_END_TIMEOUT);

/// The data that all servers share.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) kubelet: KubeletDir,
    pub(crate) register_by: RegisterBy,
    /// Whether resources are registered that another plugin already serves.
    pub(crate) take_over: bool,
    /// The resources that are left to other plugins.
    pub(crate) yielded: YieldedResources,
    /// Pauses the scans while a newer instance of this plugin serves. The newer instance writes
    /// the CDI specifications then, and the kubelet still reads the device lists of this one.
    pub(crate) pause: ScanPause,
    pub(crate) timing: Timing,
    pub(crate) allocations: AllocationReports,
    pub(crate) metrics: Metrics,
    pub(crate) streams: Streams,
}

/// Serves and registers one resource until the sender of `resource` is dropped. `socket_changes`
/// notifies of changes in the kubelet's directory.
pub(crate) async fn serve(
    resource: watch::Receiver<Arc<Resource>>,
    context: Context,
    socket_changes: Notifications,
) -> anyhow::Result<()> {
    let name = resource.borrow().name.clone();
    let options = supported_options();
    context.metrics.create_counters(&name);
    let _needs_scans = context.pause.add_server();
    let streams = context.streams.start_count(name.clone());
    let refusal = OptionsRefusal::default();
    // The ListAndWatch streams end when this channel is dropped, which is after the handover.
    let served_resource = watch::Sender::new(Arc::clone(&resource.borrow()));
    let service = DevicePluginServer::new(Service {
        resource: served_resource.subscribe(),
        streams: streams.clone(),
        refusal: refusal.clone(),
        allocations: context.allocations.clone(),
        metrics: context.metrics.clone(),
    });
    let (connections, incoming) = mpsc::channel::<UnixStream>(16);
    let (listener, listeners) = watch::channel(None);
    let (end, has_end) = oneshot::channel::<()>();

    let incoming =
        ReceiverStream::new(incoming).map(|one| Ok::<_, io::Error>(WatcherStream::new(one)));
    // Every socket has both services, because the client may be the kubelet's device manager or
    // its plugin watcher.
    let serving = Server::builder()
        .add_service(service)
        .add_service(RegistrationServer::new(PluginInfoService {
            resource: name.clone(),
        }))
        .serve_with_incoming_shutdown(incoming, async {
            // A dropped sender also means the end.
            let _ = has_end.await;
        });
    tokio::pin!(serving);
    let mut accepting = Box::pin(accept_connections(listeners, connections));
    let mut lifecycle = Lifecycle::new(
        (name, options),
        context,
        listener,
        (streams, refusal),
        socket_changes,
    );
    tokio::select! {
        // The end of the resource is checked first, so that it is not mistaken for a failure.
        biased;
        () = forward_changes(resource, &served_resource) => {}
        served = &mut serving => return served.context(SERVER_ENDED),
        () = lifecycle.run() => bail!("the registration ended"),
        () = &mut accepting => bail!("the accepting of connections ended"),
    }
    // The server keeps running meanwhile, because the kubelet connects to it during a
    // registration.
    let ending = async {
        if !lifecycle.return_to_predecessor().await {
            // The streams end before the last registration: the kubelet would disconnect it if an
            // older stream ended later.
            drop(served_resource);
            lifecycle.end_handover().await;
        }
    };
    tokio::select! {
        () = ending => {}
        served = &mut serving => return served.context(SERVER_ENDED),
        () = &mut accepting => {}
    }
    // The drop removes the socket, so that no further client can connect. The streams of connected
    // clients have ended, or end with the server.
    drop((lifecycle, accepting, end));
    match tokio::time::timeout(CLIENT_END_TIMEOUT, serving).await {
        Ok(served) => served.context(SERVER_ENDED),
        // A client that keeps its connection does not delay the end.
        Err(_) => Ok(()),
    }
}

/// Forwards the values of a channel until its sender is dropped.
async fn forward_changes(
    mut resource: watch::Receiver<Arc<Resource>>,
    served_resource: &watch::Sender<Arc<Resource>>,
) {
    while resource.changed().await.is_ok() {
        served_resource.send_replace(Arc::clone(&resource.borrow_and_update()));
    }
}

/// Accepts connections from the current listener.
async fn accept_connections(
    mut listeners: watch::Receiver<Option<Arc<tokio::net::UnixListener>>>,
    connections: mpsc::Sender<UnixStream>,
) {
    let mut fault = FaultLog::default();
    loop {
        let listener = listeners.borrow_and_update().clone();
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = listeners.changed() => if changed.is_err() { return },
            accepted = accepted => match accepted {
                Ok((connection, _)) => {
                    fault = FaultLog::default();
                    if connections.send(connection).await.is_err() { return }
                }
                Err(error) => {
                    // The process has probably run out of file descriptors. Some may become free.
                    let error = format!("cannot accept a connection: {error}");
                    fault.report([error], |error| tracing::warn!("{error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

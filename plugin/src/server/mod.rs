//! Serves one resource. The gRPC server and the registration run as two futures that start and end
//! together.

mod backoff;
mod handover_marker;
mod instance;
mod lifecycle;
mod next_step;
mod other_plugin;
mod pending_handovers;
mod register;
mod registration_lock;
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
pub(crate) use instance::OtherInstances;
pub(crate) use other_plugin::YieldedResources;
pub(crate) use pending_handovers::PendingHandovers;
use register::register;
pub(crate) use socket::{Socket, is_served, remove_stale_sockets};

use crate::catalog::{Resource, ScanPause};
use crate::holders::AllocationReporter;
use crate::kubelet_dir::KubeletDir;
use crate::metrics::Metrics;
use crate::service::{
    OpenStreamCounts, OptionsRefusal, PluginInfoService, Service, build_supported_options,
};
use daemon::host_inventory::{FaultLog, Notifications};
use daemon::kubelet_api::WatcherStream;
use daemon::kubelet_api::deviceplugin::device_plugin_server::DevicePluginServer;
use daemon::kubelet_api::pluginregistration::registration_server::RegistrationServer;
use lifecycle::{
    DEVICE_REMOVAL_TIMEOUT, LAST_REGISTRATION_TIMEOUT, Lifecycle, PREDECESSOR_RETURN_TIMEOUT,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RegistrationMethod {
    /// Call Register at kubelet.sock
    Kubelet,
    /// Put the sockets into plugins_registry, for the kubelet's plugin watcher
    Watcher,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// The time limit of a Register call. Before the kubelet answers, it tries to connect to the
    /// plugin for up to 10 seconds.
    pub(crate) register_timeout: Duration,
    /// The interval at which the socket files are checked if inotify reports no change.
    pub(crate) poll_interval: Duration,
    /// The time after a registration within which the kubelet must call ListAndWatch. After it, the
    /// resource is registered again.
    pub(crate) stream_timeout: Duration,
    /// The maximum delay before an operation that failed is tried again.
    pub(crate) max_retry_delay: Duration,
    /// The delay between the end of the earlier instance and the next registration. The kubelet
    /// needs this time to notice the end.
    pub(crate) predecessor_end_delay: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            register_timeout: Duration::from_secs(15),
            poll_interval: Duration::from_secs(10),
            stream_timeout: Duration::from_secs(5),
            max_retry_delay: Duration::from_secs(10),
            predecessor_end_delay: Duration::from_secs(2),
        }
    }
}

const SERVER_END_MESSAGE: &str = "the gRPC server ended";

/// The time within which connected clients must close their connections when a server ends.
const CLIENT_END_TIMEOUT: Duration = Duration::from_millis(700);

/// The time limit for the end of a server. Only a server that ends during a handover needs more
/// time than [`CLIENT_END_TIMEOUT`].
pub(crate) const SERVER_END_TIMEOUT: Duration = PREDECESSOR_RETURN_TIMEOUT
    .saturating_add(LAST_REGISTRATION_TIMEOUT)
    .saturating_add(DEVICE_REMOVAL_TIMEOUT)
    .saturating_add(CLIENT_END_TIMEOUT);

/// The settings and the shared state of all servers of this process.
#[derive(Debug, Clone)]
pub(crate) struct ServerContext {
    pub(crate) kubelet_dir: KubeletDir,
    pub(crate) registration_method: RegistrationMethod,
    /// Whether a resource is registered even if another plugin already serves it.
    pub(crate) should_take_over: bool,
    /// The resources that are left to other plugins.
    pub(crate) yielded_resources: YieldedResources,
    pub(crate) pending_handovers: PendingHandovers,
    /// Pauses the device scans while a newer instance of this plugin serves the resources, because
    /// that instance writes the CDI specifications.
    pub(crate) scan_pause: ScanPause,
    pub(crate) timing: Timing,
    pub(crate) allocation_reporter: AllocationReporter,
    pub(crate) metrics: Metrics,
    pub(crate) streams: OpenStreamCounts,
}

/// Serves and registers one resource until the sender of `resource` is dropped.
/// `socket_notifications` reports changes in the directories of the kubelet's and the plugin's
/// sockets.
pub(crate) async fn serve(
    resource: watch::Receiver<Arc<Resource>>,
    context: ServerContext,
    socket_notifications: Notifications,
) -> anyhow::Result<()> {
    let name = resource.borrow().name.clone();
    let options = build_supported_options();
    context.metrics.create_counters(&name);
    let _server_guard = context.scan_pause.add_server();
    let stream_count = context.streams.create_stream_count(name.clone());
    let refusal = OptionsRefusal::default();
    // The ListAndWatch streams end when this sender is dropped. That happens before the last
    // registration of a handover.
    let served_resource = watch::Sender::new(Arc::clone(&resource.borrow()));
    let service = DevicePluginServer::new(Service {
        resource: served_resource.subscribe(),
        stream_count: stream_count.clone(),
        refusal: refusal.clone(),
        allocation_reporter: context.allocation_reporter.clone(),
        metrics: context.metrics.clone(),
    });
    let (connections, incoming) = mpsc::channel::<UnixStream>(16);
    let (listener_sender, listeners) = watch::channel(None);
    let (shutdown, shutdown_signal) = oneshot::channel::<()>();

    let incoming = ReceiverStream::new(incoming)
        .map(|connection| Ok::<_, io::Error>(WatcherStream::new(connection)));
    // Every socket has both services, because the client may be the kubelet's device manager or
    // its plugin watcher.
    let server = Server::builder()
        .add_service(service)
        .add_service(RegistrationServer::new(PluginInfoService {
            resource: name.clone(),
        }))
        .serve_with_incoming_shutdown(incoming, async {
            // If the sender of the signal is dropped, the server must end as well, so the result is
            // ignored.
            let _ = shutdown_signal.await;
        });
    tokio::pin!(server);
    let mut accept_task = Box::pin(accept_connections(listeners, connections));
    let mut lifecycle = Lifecycle::new(
        (name, options),
        context,
        listener_sender,
        (stream_count, refusal),
        socket_notifications,
    );
    tokio::select! {
        // The end of the resource is polled first. Otherwise, if the server ends at the same time,
        // its end would count as a failure.
        biased;
        () = forward_changes(resource, &served_resource) => {}
        result = &mut server => return result.context(SERVER_END_MESSAGE),
        () = lifecycle.run() => bail!("the registration ended"),
        () = &mut accept_task => bail!("the accepting of connections ended"),
    }
    // The server runs until the handover has ended, because the kubelet connects to the server
    // during a registration.
    let end_handover = async {
        if !lifecycle.return_to_predecessor().await {
            // The streams end before the last registration, because the kubelet would disconnect
            // the newly registered plugin if an older stream ended later.
            drop(served_resource);
            lifecycle.end_handover().await;
        }
    };
    tokio::select! {
        () = end_handover => {}
        result = &mut server => return result.context(SERVER_END_MESSAGE),
        () = &mut accept_task => {}
    }
    // Dropping the lifecycle removes the socket, so that no further client can connect.
    // ListAndWatch streams that are still open end with the server.
    drop((lifecycle, accept_task, shutdown));
    match tokio::time::timeout(CLIENT_END_TIMEOUT, server).await {
        Ok(result) => result.context(SERVER_END_MESSAGE),
        // The server ends now, even if a client keeps its connection open.
        Err(_) => Ok(()),
    }
}

/// Forwards the values of `resource` to `served_resource` until the sender of `resource` is
/// dropped.
async fn forward_changes(
    mut resource: watch::Receiver<Arc<Resource>>,
    served_resource: &watch::Sender<Arc<Resource>>,
) {
    while resource.changed().await.is_ok() {
        served_resource.send_replace(Arc::clone(&resource.borrow_and_update()));
    }
}

/// Accepts connections from the newest listener of the channel, and sends them to the gRPC server.
async fn accept_connections(
    mut listeners: watch::Receiver<Option<Arc<tokio::net::UnixListener>>>,
    connections: mpsc::Sender<UnixStream>,
) {
    let mut fault_log = FaultLog::default();
    loop {
        let listener = listeners.borrow_and_update().clone();
        let next_connection = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = listeners.changed() => if changed.is_err() { return },
            accepted = next_connection => match accepted {
                Ok((connection, _)) => {
                    fault_log = FaultLog::default();
                    if connections.send(connection).await.is_err() { return }
                }
                Err(error) => {
                    // The process has probably run out of file descriptors. The next attempt waits
                    // until some may be free.
                    let error = format!("cannot accept a connection: {error}");
                    fault_log.report_faults([error], |error| tracing::warn!("{error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

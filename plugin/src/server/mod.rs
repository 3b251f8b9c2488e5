//! The server of one resource. Two tasks, one for the socket and one for the registration,
//! start and end together.

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
pub(crate) use socket::remove_stale;

use crate::catalog::{Resource, ScanPause};
use crate::holders::AllocationReports;
use crate::kubelet_dir::KubeletDir;
use crate::metrics::Metrics;
use crate::service::{OptionsRefusal, PluginInfoService, Service, Streams, options};
use host_inventory::{Faults, Notifications};
use kubelet_api::WatcherStream;
use kubelet_api::deviceplugin::device_plugin_server::DevicePluginServer;
use kubelet_api::pluginregistration::registration_server::RegistrationServer;
use lifecycle::Lifecycle;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RegisterBy {
    /// Call Register at kubelet.sock
    Kubelet,
    /// Put the sockets into plugins_registry, for the kubelet's plugin watcher
    Watcher,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// The limit for a Register call. The kubelet connects to the plugin, for up to 10
    /// seconds, before it answers.
    pub(crate) register: Duration,
    /// The time between two checks of the sockets when no event arrives.
    pub(crate) poll: Duration,
    /// The time to wait for ListAndWatch after a registration before registering again.
    pub(crate) listen: Duration,
    /// The longest delay between two attempts.
    pub(crate) retry: Duration,
    /// The time between the end of an earlier instance and the registration after it. The kubelet
    /// must have noticed the end before.
    pub(crate) settle: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            register: Duration::from_secs(15),
            poll: Duration::from_secs(10),
            listen: Duration::from_secs(5),
            retry: Duration::from_secs(10),
            settle: Duration::from_secs(2),
        }
    }
}

const SERVER_ENDED: &str = "the gRPC server ended";

/// Data that all servers share.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) kubelet: KubeletDir,
    pub(crate) register_by: RegisterBy,
    /// Whether to register resources that another plugin serves.
    pub(crate) take_over: bool,
    /// The resources that are left to other plugins.
    pub(crate) left: YieldedResources,
    /// The pause of the scans while a newer instance of this plugin serves. That instance writes
    /// the CDI specifications, and the kubelet still reads the lists of this one.
    pub(crate) pause: ScanPause,
    pub(crate) timing: Timing,
    pub(crate) allocations: AllocationReports,
    pub(crate) metrics: Metrics,
    pub(crate) streams: Streams,
}

/// Serves and registers one resource until the channel's sender is dropped. `socket_changes`
/// notifies of changes in the kubelet's directory.
pub(crate) async fn serve(
    resource: watch::Receiver<Arc<Resource>>,
    context: Context,
    socket_changes: Notifications,
) -> anyhow::Result<()> {
    let name = resource.borrow().name.clone();
    let options = options();
    context.metrics.serving(&name);
    let _needs_scans = context.pause.add_server();
    let streams = context.streams.start_count(name.clone());
    let refusal = OptionsRefusal::default();
    let service = DevicePluginServer::new(Service {
        resource: resource.clone(),
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
    // Every socket has both services, because the client may be the kubelet's device manager
    // or its plugin watcher.
    let serving = Server::builder()
        .add_service(service)
        .add_service(RegistrationServer::new(PluginInfoService {
            resource: name.clone(),
        }))
        .serve_with_incoming_shutdown(incoming, async {
            // A dropped sender is the end too.
            let _ = has_end.await;
        });
    tokio::pin!(serving);
    let mut accepting = Box::pin(accept(listeners, connections));
    let mut lifecycle = Lifecycle::new(
        (name, options),
        context,
        listener,
        (streams, refusal),
        socket_changes,
    );
    tokio::select! {
        // The withdrawal is checked first, so that it is not mistaken for a failure.
        biased;
        () = withdrawn(resource) => {}
        served = &mut serving => return served.context(SERVER_ENDED),
        () = lifecycle.run() => bail!("the registration ended"),
        () = &mut accepting => bail!("the accepting of connections ended"),
    }
    // The kubelet connects to the server during this registration.
    tokio::select! {
        () = lifecycle.end_handover() => {}
        served = &mut serving => return served.context(SERVER_ENDED),
        () = &mut accepting => {}
    }
    // This removes the socket, so that no client can connect any more. The streams of connected
    // clients end.
    drop((lifecycle, accepting, end));
    serving.await.context(SERVER_ENDED)
}

/// Waits until the channel's sender is dropped.
async fn withdrawn(mut resource: watch::Receiver<Arc<Resource>>) {
    while resource.changed().await.is_ok() {}
}

/// Accepts connections from the current listener.
async fn accept(
    mut listeners: watch::Receiver<Option<Arc<tokio::net::UnixListener>>>,
    connections: mpsc::Sender<UnixStream>,
) {
    let mut fault = Faults::default();
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
                    fault = Faults::default();
                    if connections.send(connection).await.is_err() { return }
                }
                Err(error) => {
                    // Probably out of descriptors, some of which may become
                    // free.
                    let error = format!("cannot accept a connection: {error}");
                    fault.report([error], |error| tracing::warn!("{error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

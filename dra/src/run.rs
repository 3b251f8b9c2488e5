//! Starts the tasks of the driver, and runs them until a signal ends the process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use host_inventory::{NodeConfig, Notifier};
use kube::Client;
use kubelet_api::WatcherStream;
use kubelet_api::dra::{v1, v1beta1};
use kubelet_api::dra_health::dra_resource_health_server::DraResourceHealthServer;
use kubelet_api::pluginregistration::registration_server::RegistrationServer;
use release_lock::ReleaseLock;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::claim::{ClaimStore, NodeClaims, PartMaker};
use crate::claim_cleanup;
use crate::claim_users::ClaimUsers;
use crate::cli::Run;
use crate::inventory::{FirstScan, Scanner};
use crate::metrics::Metrics;
use crate::pages::{self, Readiness};
use crate::plugin_allocations::PluginAllocations;
use crate::pod_cgroups::OwnPod;
use crate::service::{Registrar, Service};
use crate::slice::Publisher;
use crate::sockets::{Socket, SocketPaths};

/// The interval at which the sockets are checked for existence.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Runs the driver until SIGTERM, SIGINT or SIGQUIT.
pub async fn run(options: Run) -> Result<(), anyhow::Error> {
    let install = |signal_kind| signal(signal_kind).context("cannot install a signal handler");
    let mut terminate = install(SignalKind::terminate())?;
    let mut interrupt = install(SignalKind::interrupt())?;
    let hang_up = install(SignalKind::hangup())?;
    let on_node = options.on_node;
    let paths = SocketPaths::new(&on_node.kubelet_dir, options.pod_uid.as_deref())?;
    let (given, root) = (on_node.config.as_deref(), on_node.host_root.as_deref());
    let loaded = NodeConfig::load(given, root, None);
    let NodeConfig { config, host_root } = loaded.context("configuration")?;
    let release = options.release.as_ref();
    let lock = release.map(|release| ReleaseLock::take_to_serve(&config.host_root, release));
    let _lock = lock.transpose()?;
    let store = ClaimStore::open(&paths.directory)?;
    let http = listen("--http", on_node.http).await?;
    let probes = listen("--probes", on_node.probes).await?;
    let client = Client::try_default()
        .await
        .context("cannot configure the client of the API server")?;
    let (name, uid) = (options.pod_name, options.pod_uid);
    let pod = name.zip(uid).map(|(name, uid)| OwnPod { name, uid });
    let users = ClaimUsers::new(&on_node.kubelet_dir, &config.host_root, pod.as_ref());
    let allocations = PluginAllocations::new(&on_node.kubelet_dir, &config.host_root, pod);
    let claims = NodeClaims {
        node: options.node_name.clone(),
        store: store.clone(),
        cdi: on_node.cdi,
        hook: on_node.hook,
        host_root,
        part_maker: PartMaker {
            root: config.host_root.clone(),
            allocations: allocations.clone(),
        },
    };
    // The driver registers before the first scan has ended. The kubelet looks for new drivers once
    // a second, but retries a pod that needs a missing driver only after a minute.
    let scanner = Scanner::new(config, allocations, store);
    let (inventory, first_scan) = (scanner.subscribe(), scanner.first_scan());
    let metrics = Metrics::default();
    let service = Service {
        client: client.clone(),
        claims: claims.clone(),
        users: users.clone(),
        node: options.node_name.clone(),
        inventory: inventory.clone(),
        first_scan: first_scan.clone(),
        metrics: metrics.clone(),
    };
    let registry = metrics.registry();
    let publisher = Publisher::new(
        client.clone(),
        options.node_name,
        options.unhealthy.name(),
        metrics,
    );
    let (registered, is_registered) = watch::channel(false);
    let readiness = Readiness {
        is_registered: is_registered.clone(),
        first_scan: first_scan.clone(),
    };
    let (reload, reloads) = Notifier::new();
    paths.remove_stale_sockets();
    let reason = tokio::select! {
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
        () = run_after_scan(&first_scan, publisher.run(inventory.clone(), is_registered.clone())) => {
            "the publisher"
        }
        () = scanner.run(on_node.rescan, reloads) => "the scanner",
        () = run_after_scan(&first_scan, claim_cleanup::restore_specifications(claims.clone(), inventory.clone())) => {
            "the specifications of claims"
        }
        () = run_after_scan(&first_scan, claim_cleanup::run(client, claims, users, inventory)) => {
            "the collection of claims"
        }
        () = pages::serve(http, Some(registry), readiness.clone()) => "the HTTP server",
        () = pages::serve(probes, None, readiness) => "the server of probes",
        () = forward_hang_ups(hang_up, reload) => "the SIGHUP handler",
        served = serve_kubelet(&paths, service, registered) => {
            served?;
            "the server"
        }
    };
    anyhow::bail!("{reason} ended")
}

async fn run_after_scan<T>(first_scan: &FirstScan, work: impl Future<Output = T>) -> T {
    first_scan.wait().await;
    work.await
}

async fn listen(
    option: &str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, anyhow::Error> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("{option} {address}: cannot listen"))?;
    Ok(Some(listener))
}

/// Serves the kubelet. If a socket is removed, both sockets are created again.
async fn serve_kubelet(
    paths: &SocketPaths,
    service: Service,
    registered: watch::Sender<bool>,
) -> Result<(), anyhow::Error> {
    loop {
        let bind = |path| Socket::bind(path).with_context(|| format!("cannot listen at {path:?}"));
        // The service's socket is created first, because the kubelet calls the service as soon as
        // it finds the registration socket.
        let mut calls = bind(&paths.service)?;
        let mut registration = bind(&paths.registration)?;
        let incoming = |socket: &mut Socket| socket.listener.take().map(UnixListenerStream::new);
        let (Some(to_calls), Some(to_registration)) =
            (incoming(&mut calls), incoming(&mut registration))
        else {
            continue;
        };
        let registrar = Registrar {
            endpoint: paths.service.display().to_string(),
            registered: registered.clone(),
        };
        let serving = Server::builder()
            .add_service(v1::dra_plugin_server::DraPluginServer::new(service.clone()))
            .add_service(v1beta1::dra_plugin_server::DraPluginServer::new(
                service.clone(),
            ))
            .add_service(DraResourceHealthServer::new(service.clone()))
            .serve_with_incoming(to_calls);
        let registering = Server::builder()
            .add_service(RegistrationServer::new(registrar))
            .serve_with_incoming(to_registration.map(|sockets| sockets.map(WatcherStream::new)));
        let removed = async {
            while calls.exists() && registration.exists() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::select! {
            served = serving => served?,
            served = registering => served?,
            () = removed => {}
        }
        tracing::warn!("a socket of the driver was removed: making it again");
    }
}

async fn forward_hang_ups(mut hang_up: Signal, reload: Notifier) {
    while hang_up.recv().await.is_some() {
        tracing::info!("received SIGHUP, reloading the classes");
        reload.notify();
    }
}

//! Starts the tasks of the driver, and runs them until a signal ends the process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use daemon::host_inventory::{NodeConfig, Notifier};
use daemon::http_server;
use daemon::kubelet_api::WatcherStream;
use daemon::kubelet_api::dra::{v1, v1beta1};
use daemon::kubelet_api::dra_health::dra_resource_health_server::DraResourceHealthServer;
use daemon::kubelet_api::pluginregistration::registration_server::RegistrationServer;
use daemon::signals::{EndSignals, HangupSignals};
use host_files::release_lock::NodeReleaseLock;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::api_client::ApiClients;
use crate::claim::{ClaimPreparer, ClaimStore, PartCreator};
use crate::claim_cleanup;
use crate::claim_users::ClaimUsers;
use crate::cli::RunOptions;
use crate::inventory::{FirstScan, Scanner};
use crate::metrics::Metrics;
use crate::node_events;
use crate::pages::{self, Readiness};
use crate::plugin_allocations::PluginAllocations;
use crate::pod_cgroups::DriverPod;
use crate::service::{Registrar, Service};
use crate::slice::Publisher;
use crate::sockets::{Socket, SocketPaths};

/// The interval at which the driver checks whether its socket files still exist.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Runs the driver until SIGTERM, SIGINT or SIGQUIT. Fails if one of its tasks ends before.
pub async fn run(options: RunOptions) -> Result<(), anyhow::Error> {
    let (mut end_signals, hang_ups) = (EndSignals::new()?, HangupSignals::new()?);
    let node_options = options.node_options;
    let socket_paths = SocketPaths::new(&node_options.kubelet_dir, options.pod_uid.as_deref())?;
    let (config_path, host_root_path) = (
        node_options.config_path.as_deref(),
        node_options.host_root.as_deref(),
    );
    let load_result = NodeConfig::load(config_path, host_root_path, options.hook_config.as_deref());
    let NodeConfig { config, host_root } = load_result.context("configuration")?;
    let release = options.release.as_ref();
    let lock = release.map(|release| NodeReleaseLock::acquire_to_serve(&config.host_root, release));
    let _lock = lock.transpose()?;
    let store = ClaimStore::open(&socket_paths.driver_directory)?;
    let http_listener = listen("--http", node_options.http_address)?;
    let probe_listener = listen("--probes", node_options.probe_address)?;
    let clients = ApiClients::connect().await?;
    let client = clients.requests.clone();
    let (name, uid) = (options.pod_name, options.pod_uid);
    let driver_pod = name.zip(uid).map(|(name, uid)| DriverPod { name, uid });
    let claim_users = ClaimUsers::new(
        &node_options.kubelet_dir,
        &config.host_root,
        driver_pod.as_ref(),
    );
    let allocations =
        PluginAllocations::new(&node_options.kubelet_dir, &config.host_root, driver_pod);
    let claims = ClaimPreparer {
        node_name: options.node_name.clone(),
        store: store.clone(),
        cdi_directory: node_options.cdi_dir,
        hook_path: node_options.hook_path,
        hook_config_path: options.hook_config,
        host_root,
        part_creator: PartCreator {
            host_root: config.host_root.clone(),
            allocations: allocations.clone(),
        },
    };
    // The driver registers before the first scan has ended. If a pod needs an unregistered driver,
    // the kubelet refuses the pod, and tries again only after a minute.
    let scanner = Scanner::new(config, allocations, store);
    let (inventory, first_scan) = (scanner.subscribe(), scanner.first_scan());
    let metrics = Metrics::default();
    let service = Service {
        client: client.clone(),
        claims: claims.clone(),
        claim_users: claim_users.clone(),
        node_name: options.node_name.clone(),
        inventory: inventory.clone(),
        first_scan: first_scan.clone(),
        metrics: metrics.clone(),
    };
    let registry = metrics.build_registry();
    let publisher = Publisher::new(
        clients,
        options.node_name.clone(),
        options.taint_effect.as_str(),
        metrics,
    );
    let (registration_sender, registration_state) = watch::channel(false);
    let readiness = Readiness {
        registration_state: registration_state.clone(),
        first_scan: first_scan.clone(),
    };
    let (reload, reloads) = Notifier::new();
    socket_paths.remove_stale_sockets();
    let ended_task = tokio::select! {
        () = end_signals.wait() => return Ok(()),
        () = run_after_scan(
            &first_scan,
            publisher.run(inventory.clone(), registration_state.clone()),
        ) => {
            "the publisher"
        }
        () = scanner.run(node_options.rescan_interval, reloads) => "the scanner",
        () = run_after_scan(
            &first_scan,
            node_events::run(client.clone(), options.node_name, inventory.clone()),
        ) => {
            "the Events of the node"
        }
        () = run_after_scan(
            &first_scan,
            claim_cleanup::restore_specifications(claims.clone(), inventory.clone()),
        ) => {
            "the specifications of claims"
        }
        () = run_after_scan(
            &first_scan,
            claim_cleanup::run(client, claims, claim_users, inventory),
        ) => {
            "the collection of claims"
        }
        () = pages::serve(http_listener, Some(registry), readiness.clone()) => "the HTTP server",
        () = pages::serve(probe_listener, None, readiness) => "the server of probes",
        () = hang_ups.forward(reload) => "the SIGHUP handler",
        result = serve_kubelet(&socket_paths, service, registration_sender) => {
            result?;
            "the server"
        }
    };
    anyhow::bail!("{ended_task} ended")
}

async fn run_after_scan<T>(first_scan: &FirstScan, task: impl Future<Output = T>) -> T {
    first_scan.wait_for_end().await;
    task.await
}

fn listen(option: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, anyhow::Error> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listener = http_server::listen(address);
    let listener = listener.with_context(|| format!("{option} {address}: cannot listen"))?;
    Ok(Some(listener))
}

/// Answers the calls of the kubelet and of its plugin watcher, each at its own socket. If one of
/// the two sockets is removed, both are created again.
async fn serve_kubelet(
    socket_paths: &SocketPaths,
    service: Service,
    registration_sender: watch::Sender<bool>,
) -> Result<(), anyhow::Error> {
    loop {
        let bind_socket =
            |path| Socket::bind(path).with_context(|| format!("cannot listen at {path:?}"));
        // The service's socket is created first, because the kubelet calls the service as soon as
        // it finds the registration socket.
        let mut service_socket = bind_socket(&socket_paths.service_socket_path)?;
        let mut registration_socket = bind_socket(&socket_paths.registration_socket_path)?;
        let take_connections =
            |socket: &mut Socket| socket.listener.take().map(UnixListenerStream::new);
        let (Some(service_connections), Some(registration_connections)) = (
            take_connections(&mut service_socket),
            take_connections(&mut registration_socket),
        ) else {
            continue;
        };
        let registrar = Registrar {
            endpoint: socket_paths.service_socket_path.display().to_string(),
            registration_sender: registration_sender.clone(),
        };
        let service_server = Server::builder()
            .add_service(v1::dra_plugin_server::DraPluginServer::new(service.clone()))
            .add_service(v1beta1::dra_plugin_server::DraPluginServer::new(
                service.clone(),
            ))
            .add_service(DraResourceHealthServer::new(service.clone()))
            .serve_with_incoming(service_connections);
        let registration_server = Server::builder()
            .add_service(RegistrationServer::new(registrar))
            .serve_with_incoming(
                registration_connections.map(|sockets| sockets.map(WatcherStream::new)),
            );
        let socket_removal = async {
            while service_socket.exists() && registration_socket.exists() {
                tokio::time::sleep(SOCKET_CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            result = service_server => result?,
            result = registration_server => result?,
            () = socket_removal => {}
        }
        tracing::warn!("a socket of the driver was removed: making it again");
    }
}

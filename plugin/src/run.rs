//! Starts the tasks of the plugin, and runs them until a signal ends the process.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, bail};
use host_inventory::{DirectoryChange, NodeConfig, Notifier, WatchedEvents, watch_directories};
use http_server::Limits;
use injection_plan::kubelet_checkpoint;
use kubelet_api::KUBELET_SOCKET;
use release_lock::ReleaseLock;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::catalog::{CdiFiles, GracePeriod, InventoryWatcher, PodAllocations, ScanPause};
use crate::cli::{Delivery, Run};
use crate::holders::HolderWatch;
use crate::http::{AllocatedDevices, CurrentState, MetricsPage, Pages};
use crate::kubelet_dir::{self, KubeletDir, SOCKET_PREFIX};
use crate::metrics::Metrics;
use crate::node_labels::LabelFile;
use crate::pod_cgroups::PodCgroups;
use crate::server::{Context, Timing, YieldedResources, remove_stale_sockets};
use crate::service::Streams;
use crate::signals::EndSignals;
use crate::supervisor::Supervisor;
use crate::trusted_pods;

/// Runs the plugin until SIGTERM, SIGINT or SIGQUIT.
pub async fn run(options: Run) -> anyhow::Result<()> {
    let node = options.node;
    let kubelet = KubeletDir::new(node.kubelet_dir)?;
    let (given, root) = (node.config.as_deref(), node.host_root.as_deref());
    let loaded = NodeConfig::load(given, root, options.hook_config.as_deref());
    let NodeConfig { config, host_root } = loaded.context("configuration")?;
    let release = options.release.as_ref();
    let lock = release.map(|release| ReleaseLock::take_to_serve(&config.host_root, release));
    let _lock = lock.transpose()?;
    let signals = "cannot install a signal handler";
    let mut ends = EndSignals::new().context(signals)?;
    let hang_up = signal(SignalKind::hangup()).context(signals)?;

    for directory in [kubelet.device_plugins(), kubelet.plugins_registry()] {
        remove_stale_sockets(&directory);
    }
    let metrics = Metrics::default();
    let record = kubelet.device_plugins().join(kubelet_checkpoint::FILE_NAME);
    let root = config.host_root.clone();
    let (holders, allocations) = HolderWatch::new(record.clone(), &root, metrics.clone());
    let by_cdi = options.delivery == Delivery::Cdi;
    if by_cdi && let Some(warning) = trusted_pods::warn_of_cdi(&config) {
        tracing::warn!("{warning}");
    }
    let pods = PodAllocations::new(record.clone(), &root);
    let cdi = by_cdi.then(|| {
        let files = CdiFiles::new(node.cdi, node.hook, host_root, pods);
        files.with_hook_config(options.hook_config)
    });
    let grace = GracePeriod::new(options.forget);
    let claims = kubelet_dir::claim_records(kubelet.root());
    let (streams, yielded) = (Streams::default(), YieldedResources::default());
    let pause = ScanPause::default();
    let labels = options.node_labels.map(LabelFile::new);
    let watcher = InventoryWatcher::new(config, grace, claims, cdi, pause.clone(), metrics.clone());
    let watcher = watcher.with_labels(labels);
    let inventory = watcher.subscribe();
    let state = CurrentState {
        inventory: inventory.clone(),
        streams: streams.clone(),
        yielded: yielded.clone(),
        scans: watcher.scans(),
        allocated: AllocatedDevices::new(
            kubelet.pod_resources_socket(),
            record,
            PodCgroups::new(&root),
        ),
    };
    let all = Pages {
        metrics: Some(MetricsPage::new(&metrics, state.clone())),
        state: state.clone(),
    };
    let probes_alone = Pages {
        metrics: None,
        state,
    };
    let http = listen("--http", node.http).await?;
    let probes = listen("--probes", node.probes).await?;
    let (reload, reloads) = Notifier::new();
    let (sockets_changed, socket_changes) = Notifier::new();
    let context = Context {
        kubelet: kubelet.clone(),
        register_by: options.register,
        take_over: options.take_over,
        yielded,
        pause,
        timing: Timing {
            register_timeout: options.register_timeout,
            ..Timing::default()
        },
        allocations,
        metrics,
        streams,
    };
    let mut supervisor = Supervisor::new(context, socket_changes);
    let ended = tokio::select! {
        name = ends.next() => { tracing::info!("received {name}, exiting"); None }
        () = supervisor.run(inventory) => Some("the supervisor"),
        () = watcher.run(node.rescan, reloads) => Some("the inventory watcher"),
        () = holders.run() => Some("the watch of holders"),
        () = watch_sockets(&kubelet, sockets_changed) => Some("the socket watch"),
        () = serve_pages(http, all) => Some("the HTTP server"),
        () = serve_pages(probes, probes_alone) => Some("the server of probes"),
        () = forward_hang_ups(hang_up, reload) => Some("the SIGHUP handler"),
    };
    supervisor.stop().await;
    match ended {
        Some(part) => bail!("{part} ended"),
        None => Ok(()),
    }
}

async fn serve_pages(listener: Option<TcpListener>, pages: Pages) {
    match listener {
        Some(listener) => http_server::serve(listener, Limits::PAGES, pages).await,
        None => std::future::pending().await,
    }
}

async fn forward_hang_ups(mut hang_up: Signal, reload: Notifier) {
    while hang_up.recv().await.is_some() {
        tracing::info!("received SIGHUP, reloading the classes");
        reload.notify();
    }
}

async fn listen(
    option: &'static str,
    address: Option<SocketAddr>,
) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else {
        return Ok(None);
    };
    let failed = || format!("{option} {address}: cannot listen");
    let mut listener = TcpListener::bind(address).await;
    if listener.is_err() && address.ip() == Ipv6Addr::UNSPECIFIED {
        // A kernel without IPv6 cannot listen at the unspecified IPv6 address.
        let of_ipv4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await;
        listener = of_ipv4.or(listener);
    }
    let listener = listener.with_context(failed)?;
    let address = listener.local_addr().with_context(failed)?;
    let what = match option {
        "--probes" => "health",
        _ => "metrics and health",
    };
    tracing::info!("serving {what} at http://{address}");
    Ok(Some(listener))
}

/// Notifies the servers when the kubelet's socket or a socket of the plugin is created or removed.
/// If inotify fails, the servers poll the sockets.
async fn watch_sockets(kubelet: &KubeletDir, notifier: Notifier) {
    let directories = vec![kubelet.device_plugins(), kubelet.plugins_registry()];
    let notify = |notice: DirectoryChange<'_>| {
        let relevant = match notice {
            DirectoryChange::Unknown => true,
            DirectoryChange::Entry(name) => {
                let name = name.to_string_lossy();
                name == KUBELET_SOCKET || name.starts_with(SOCKET_PREFIX)
            }
        };
        if relevant {
            notifier.notify();
        }
    };
    watch_directories(directories, WatchedEvents::Entries, notify).await;
}

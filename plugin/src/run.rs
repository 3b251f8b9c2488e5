//! The process, from its options to its end.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use device_class::config::Config;
use device_class::strict_toml::FileError;
use host_inventory::{DirWatch, Interest, Notice, Notifier};
use injection_plan::record;
use kubelet_api::KUBELET_SOCKET;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::catalog::{CdiFiles, InventoryWatcher, ScanParameters};
use crate::cli::{Delivery, Run};
use crate::http::{self, MetricsPage, Pages};
use crate::kubelet_dir::{KubeletDir, KubeletDirError, SOCKET_PREFIX};
use crate::metrics::Metrics;
use crate::server::{Context, LeftToOthers, Timing, remove_stale};
use crate::service::Streams;
use crate::signals::EndSignals;
use crate::supervisor::Supervisor;

/// Why the process cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    KubeletDir(#[from] KubeletDirError),
    #[error("configuration")]
    Config(#[from] FileError),
    #[error("cannot install a signal handler")]
    Signals(#[source] std::io::Error),
    #[error("{option} {address}: cannot listen")]
    Http {
        option: &'static str,
        address: SocketAddr,
        #[source]
        error: std::io::Error,
    },
    #[error("{0} ended")]
    Part(&'static str),
}

/// The time after which a failed watch is tried again.
const WATCH_AGAIN: Duration = Duration::from_secs(300);

/// Runs until a signal that ends processes.
pub async fn run(options: Run) -> Result<(), RunError> {
    let node = options.node;
    let kubelet = KubeletDir::new(node.kubelet_dir)?;
    let mut config = Config::load(node.config.as_deref())?;
    let host_root = config.host_root.clone();
    if let Some(root) = &node.host_root {
        config = config.mounted_at(root);
    }
    let mut ends = EndSignals::new().map_err(RunError::Signals)?;
    let hang_up = signal(SignalKind::hangup()).map_err(RunError::Signals)?;

    for directory in [kubelet.device_plugins(), kubelet.plugins_registry()] {
        remove_stale(&directory);
    }
    let metrics = Metrics::default();
    let by_cdi = options.delivery == Delivery::Cdi;
    let cdi = by_cdi.then(|| CdiFiles::new(node.cdi, node.hook, host_root));
    let source = ScanParameters {
        config,
        forget: options.forget,
        claims: kubelet.claims(),
    };
    let (streams, left) = (Streams::default(), LeftToOthers::default());
    let watcher = InventoryWatcher::new(source, cdi, metrics.clone());
    let (inventory, scans) = (watcher.subscribe(), watcher.scans());
    let page = MetricsPage::new(
        &metrics,
        inventory.clone(),
        (streams.clone(), left.clone()),
        scans.clone(),
        kubelet.device_plugins().join(record::FILE_NAME),
    );
    let pages = |metrics| Pages {
        metrics,
        inventory: inventory.clone(),
        streams: streams.clone(),
        left: left.clone(),
        scans: scans.clone(),
    };
    let (all, probes_alone) = (pages(Some(page)), pages(None));
    let http = listen("--http", node.http).await?;
    let probes = listen("--probes", node.probes).await?;
    let (reload, reloads) = Notifier::new();
    let (sockets_changed, socket_changes) = Notifier::new();
    let context = Context {
        kubelet: kubelet.clone(),
        register_by: options.register,
        take_over: options.take_over,
        left,
        timing: Timing {
            register: options.register_timeout,
            ..Timing::default()
        },
        metrics,
        streams: streams.clone(),
    };
    let mut supervisor = Supervisor::new(context, socket_changes);
    let ended = tokio::select! {
        name = ends.next() => { tracing::info!("received {name}, exiting"); Ok(()) }
        () = supervisor.run(inventory.clone()) => Err(RunError::Part("the supervisor")),
        () = watcher.run(node.rescan, reloads) => Err(RunError::Part("the inventory watcher")),
        () = watch_sockets(&kubelet, sockets_changed) => Err(RunError::Part("the socket watch")),
        () = serve_pages(http, all) => Err(RunError::Part("the HTTP server")),
        () = serve_pages(probes, probes_alone) => Err(RunError::Part("the server of probes")),
        () = hang_ups(hang_up, reload) => Err(RunError::Part("the SIGHUP handler")),
    };
    supervisor.stop().await;
    ended
}

async fn serve_pages(listener: Option<TcpListener>, pages: Pages) {
    match listener {
        Some(listener) => http::serve(listener, pages).await,
        None => std::future::pending().await,
    }
}

async fn hang_ups(mut hang_up: Signal, reload: Notifier) {
    while hang_up.recv().await.is_some() {
        tracing::info!("received SIGHUP, reloading the classes");
        reload.notify();
    }
}

async fn listen(
    option: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let failed = |error| RunError::Http {
        option,
        address,
        error,
    };
    let mut listener = TcpListener::bind(address).await;
    if listener.is_err() && address.ip() == Ipv6Addr::UNSPECIFIED {
        // The kernel may have no IPv6.
        let of_ipv4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await;
        listener = of_ipv4.or(listener);
    }
    let listener = listener.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let what = match option {
        "--probes" => "health",
        _ => "metrics and health",
    };
    tracing::info!("serving {what} at http://{address}");
    Ok(Some(listener))
}

/// Notifies when the kubelet's socket or one of ours appears or goes away.
/// Without inotify, the servers fall back to polling.
async fn watch_sockets(kubelet: &KubeletDir, notifier: Notifier) {
    let directories = vec![kubelet.device_plugins(), kubelet.plugins_registry()];
    let notify = |notice: Notice<'_>| {
        let relevant = match notice {
            Notice::Anything => true,
            Notice::Name(name) => {
                let name = name.to_string_lossy();
                name == KUBELET_SOCKET || name.starts_with(SOCKET_PREFIX)
            }
        };
        if relevant {
            notifier.notify();
        }
    };
    loop {
        let ended = match DirWatch::new(directories.clone(), Interest::Names) {
            Ok(watch) => watch.run(notify).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::error!(
                "cannot watch {}, polling instead: {error}",
                kubelet.root().display()
            );
        }
        tokio::time::sleep(WATCH_AGAIN).await;
    }
}

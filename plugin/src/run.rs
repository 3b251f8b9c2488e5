//! The whole process, from its options to its end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_class::config::Config;
use device_class::strict_toml::FileError;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api::KUBELET_SOCKET;
use crate::catalog::{Keeper, Source};
use crate::dir_watch::{DirWatch, Interest, Notice};
use crate::http::{self, Pages};
use crate::kubelet_dir::{KubeletDir, KubeletDirError, SOCKET_PREFIX};
use crate::metrics::Metrics;
use crate::nudge::Nudge;
use crate::server::{Context, RegisterBy, Timing, remove_stale};
use crate::service::Preparer;
use crate::supervisor::Supervisor;

/// What to run with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kubelet's root.
    pub kubelet_dir: PathBuf,
    /// How the kubelet learns of us.
    pub register_by: RegisterBy,
    /// The configuration; without it the default file, which may be absent.
    pub config: Option<PathBuf>,
    /// How often to look at the host, should nothing tell of a change.
    pub rescan: Duration,
    /// How long a device that is missing counts as unhealthy, before it is
    /// gone.
    pub forget: Duration,
    /// How long servers wait for what.
    pub timing: Timing,
    /// Whether to end when a kubelet listens to every resource.
    pub once: bool,
    /// Where to serve metrics and health; `None`: nowhere.
    pub http: Option<SocketAddr>,
}

/// Why the process can't run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kubelet's directory can't be used.
    #[error(transparent)]
    KubeletDir(#[from] KubeletDirError),
    /// The configuration can't be used.
    #[error("configuration: {0}")]
    Config(#[from] FileError),
    /// The kernel refuses a signal handler.
    #[error("signals can't be received: {0}")]
    Signals(#[source] std::io::Error),
    /// The address for metrics and health can't be used.
    #[error("--http {address}: {error}")]
    Http {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        error: std::io::Error,
    },
    /// There is nothing that the kubelet could be told of.
    #[error("there is no device to advertise; `boathook-plugin list` says what is left out")]
    Nothing,
    /// The kubelet did not take up what it was told.
    #[error("no kubelet listened to {names} in {} s", patience.as_secs_f32())]
    Unheard {
        /// The resources to which none did.
        names: String,
        /// How long that was waited for.
        patience: Duration,
    },
    /// A part that has to run for ever ended.
    #[error("{0} ended")]
    Part(&'static str),
}

/// What could not be watched is tried again after so long.
const WATCH_AGAIN: Duration = Duration::from_secs(300);

/// Runs until SIGTERM or SIGINT; or once, until a kubelet listens to every
/// resource.
///
/// # Errors
/// The options can't be used, or a part failed that can't start again; or,
/// once, there is no resource or no kubelet that listens in time.
pub async fn run(options: Options) -> Result<(), RunError> {
    let kubelet = KubeletDir::new(options.kubelet_dir)?;
    let config = Config::load(options.config.as_deref())?;
    let hear = |kind| signal(kind).map_err(RunError::Signals);
    let stop = stop_signal(
        hear(SignalKind::terminate())?,
        hear(SignalKind::interrupt())?,
    );
    let hang_up = hear(SignalKind::hangup())?;

    for directory in [kubelet.device_plugins(), kubelet.plugins_registry()] {
        remove_stale(&directory);
    }
    let preparer = Arc::new(Preparer::new(config.host_root.clone()));
    let source = Source {
        config,
        forget: options.forget,
    };
    let metrics = Arc::<Metrics>::default();
    let keeper = Keeper::start(source, Arc::clone(&metrics)).await;
    let inventory = keeper.subscribe();
    let pages = Pages {
        metrics: Arc::clone(&metrics),
        inventory: keeper.subscribe(),
    };
    let http = match options.http {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let (reload, reloads) = Nudge::new();
    let (nudge, nudges) = Nudge::new();
    let (register_by, timing) = (options.register_by, options.timing);
    let context = Context {
        kubelet: kubelet.clone(),
        register_by,
        timing,
        preparer,
        metrics,
    };
    let first = pages.clone();
    let once = async {
        match options.once {
            true => heard(first, timing.register).await,
            false => std::future::pending().await,
        }
    };
    let mut supervisor = Supervisor::new(context, nudges);
    let ended = tokio::select! {
        name = stop => { tracing::info!("{name}: ending"); Ok(()) }
        heard = once => heard,
        () = supervisor.run(inventory) => Err(RunError::Part("the supervisor")),
        () = keeper.run(options.rescan, reloads) => Err(RunError::Part("the catalog")),
        () = watch_sockets(&kubelet, nudge) => Err(RunError::Part("the watch")),
        () = serve_pages(http, pages) => Err(RunError::Part("the HTTP server")),
        () = hang_ups(hang_up, reload) => Err(RunError::Part("the reload")),
    };
    supervisor.stop().await;
    ended
}

async fn stop_signal(mut terminate: Signal, mut interrupt: Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

async fn serve_pages(listener: Option<TcpListener>, pages: Pages) {
    match listener {
        Some(listener) => http::serve(listener, pages).await,
        None => std::future::pending().await,
    }
}

/// SIGHUP is the usual word for reading one's files again.
async fn hang_ups(mut hang_up: Signal, reload: Nudge) {
    while hang_up.recv().await.is_some() {
        tracing::info!("SIGHUP: reading the classes again");
        reload.give();
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, RunError> {
    let failed = |error| RunError::Http { address, error };
    let listener = http::listen(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!("metrics and health are at http://{address}");
    Ok(listener)
}

/// Gives a nudge when the kubelet's socket or one of ours comes or goes.
/// Without inotify, the servers' own poll has to do.
async fn watch_sockets(kubelet: &KubeletDir, nudge: Nudge) {
    let directories = vec![kubelet.device_plugins(), kubelet.plugins_registry()];
    let nudging = |notice: Notice<'_>| {
        let relevant = match notice {
            Notice::Anything => true,
            Notice::Name(name) => {
                let name = name.to_string_lossy();
                name == KUBELET_SOCKET || name.starts_with(SOCKET_PREFIX)
            }
        };
        if relevant {
            nudge.give();
        }
    };
    loop {
        let ended = match DirWatch::new(directories.clone(), Interest::Names) {
            Ok(watch) => watch.run(nudging).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::error!(
                "{} can't be watched, only polled: {error}",
                kubelet.root().display()
            );
        }
        tokio::time::sleep(WATCH_AGAIN).await;
    }
}

/// Waits until a kubelet listens to every resource.
async fn heard(pages: Pages, patience: Duration) -> Result<(), RunError> {
    let end = Instant::now() + patience;
    loop {
        let unheard = {
            let inventory = pages.inventory.borrow();
            if inventory.is_empty() {
                return Err(RunError::Nothing);
            }
            pages.metrics.unheard(&inventory)
        };
        if unheard.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            let names: Vec<String> = unheard.iter().map(ToString::to_string).collect();
            let names = names.join(", ");
            return Err(RunError::Unheard { names, patience });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! Starts the tasks of the plugin, and runs them until a signal ends the process.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use daemon::command_line;
use daemon::host_inventory::{
    DirectoryChange, NodeConfig, Notifications, Notifier, WatchedEvents, watch_directories,
};
use daemon::http_server;
use daemon::http_server::Limits;
use daemon::kubelet_api::KUBELET_SOCKET_NAME;
use daemon::signals::{EndSignals, HangupSignals};
use host_files::release_lock::NodeReleaseLock;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::catalog::{CdiFiles, GracePeriod, InventoryWatcher, PodAllocations, ScanPause};
use crate::cli::{HookDelivery, RunOptions};
use crate::holders::AllocationChecker;
use crate::http::{AllocatedDevices, HostVersions, MetricsPage, Pages, StateSources};
use crate::kubelet_dir::{self, KubeletDir, SOCKET_PREFIX};
use crate::metrics::Metrics;
use crate::node_labels::LabelFile;
use crate::pod_cgroups::PodCgroups;
use crate::server::{
    OtherInstances, PendingHandovers, ServerContext, Socket, Timing, YieldedResources, is_served,
    remove_stale_sockets,
};
use crate::service::OpenStreamCounts;
use crate::supervisor::Supervisor;
use crate::trusted_pods;

/// Runs the plugin until SIGTERM, SIGINT or SIGQUIT. Fails if one of its tasks ends before a signal
/// arrives.
pub async fn run(options: RunOptions) -> anyhow::Result<()> {
    let node_options = options.node_options;
    let kubelet_dir = KubeletDir::new(node_options.kubelet_dir)?;
    let (config_path, host_root) = (
        node_options.config_path.as_deref(),
        node_options.host_root.as_deref(),
    );
    let load_result = NodeConfig::load(config_path, host_root, options.hook_config.as_deref());
    let NodeConfig { config, host_root } = load_result.context("configuration")?;
    let release = options.release.as_ref();
    let lock = release.map(|release| NodeReleaseLock::acquire_to_serve(&config.host_root, release));
    let _lock = lock.transpose()?;
    let (mut end_signals, hang_ups) = (EndSignals::new()?, HangupSignals::new()?);

    let socket_directories = [
        kubelet_dir.device_plugins_dir(),
        kubelet_dir.plugins_registry_dir(),
    ];
    for directory in &socket_directories {
        remove_stale_sockets(directory);
    }
    let other_instances = OtherInstances::connect(socket_directories.to_vec()).await;
    // Other instances of the plugin find this one by this socket. If this one is killed before it
    // serves a resource, they notice it, and remove the CDI files that its scans wrote. An error is
    // ignored: if the directory is not writable, the sockets of all resources fail too, and that
    // error is reported.
    let _instance_socket = Socket::bind_in(&kubelet_dir.device_plugins_dir());
    let metrics = Metrics::default();
    let checkpoint_path = kubelet_dir::checkpoint_path(kubelet_dir.root());
    let root = config.host_root.clone();
    let (allocation_checker, allocation_reporter) =
        AllocationChecker::new(checkpoint_path.clone(), &root, metrics.clone());
    let uses_cdi = options.delivery == HookDelivery::Cdi;
    if uses_cdi && let Some(warning) = trusted_pods::build_cdi_warning(&config) {
        tracing::warn!("{warning}");
    }
    let pod_allocations = PodAllocations::new(checkpoint_path.clone(), &root);
    let host_versions = HostVersions::new(&root, &node_options.hook_path);
    let cdi_files = uses_cdi.then(|| {
        let files = CdiFiles::new(
            node_options.cdi_dir,
            node_options.hook_path,
            host_root,
            pod_allocations.clone(),
        );
        files.with_hook_config(options.hook_config)
    });
    let grace_period = GracePeriod::new(options.grace_period);
    let claim_records_dir = kubelet_dir::claim_records_dir(kubelet_dir.root());
    let (streams, yielded_resources) = (OpenStreamCounts::default(), YieldedResources::default());
    let scan_pause = ScanPause::default();
    let label_file = options.node_labels.map(LabelFile::new);
    let watcher = InventoryWatcher::new(
        config,
        grace_period,
        claim_records_dir,
        pod_allocations,
        cdi_files,
        scan_pause.clone(),
        metrics.clone(),
    );
    let watcher = watcher.with_label_file(label_file);
    let inventory = watcher.subscribe();
    let other_instances_ended = watcher.other_instances_ended();
    let state = StateSources {
        inventory: inventory.clone(),
        streams: streams.clone(),
        yielded_resources: yielded_resources.clone(),
        scan_progress: watcher.scan_progress(),
        allocated_devices: AllocatedDevices::new(
            kubelet_dir.pod_resources_socket_path(),
            checkpoint_path,
            PodCgroups::new(&root),
        ),
        host_versions,
    };
    let all_pages = Pages {
        metrics_page: Some(MetricsPage::new(&metrics, state.clone())),
        state: state.clone(),
    };
    let probe_pages = Pages {
        metrics_page: None,
        state: state.clone(),
    };
    let is_replacement = options.report_ready;
    let http_server = PageServer::new("--http", node_options.http_address, is_replacement)?;
    let probe_server = PageServer::new("--probes", node_options.probe_address, is_replacement)?;
    let pending_handovers = PendingHandovers::default();
    let readiness = Readiness {
        state,
        pending_handovers: pending_handovers.clone(),
        kubelet_socket: kubelet_dir.kubelet_socket_path(),
    };
    let (reload, reloads) = Notifier::new();
    let (sockets_changed, socket_changes) = Notifier::new();
    let instance_changes = socket_changes.clone();
    let context = ServerContext {
        kubelet_dir: kubelet_dir.clone(),
        registration_method: options.registration_method,
        should_take_over: options.take_over,
        yielded_resources,
        pending_handovers,
        scan_pause,
        timing: Timing {
            register_timeout: options.register_timeout,
            ..Timing::default()
        },
        allocation_reporter,
        metrics,
        streams,
    };
    let mut supervisor = Supervisor::new(context, socket_changes);
    let ended_task = tokio::select! {
        () = end_signals.wait() => None,
        () = supervisor.run(inventory) => Some("the supervisor"),
        () = watcher.run(node_options.rescan_interval, reloads) => Some("the inventory watcher"),
        () = allocation_checker.run() => Some("the watch of holders"),
        () = watch_sockets(&kubelet_dir, sockets_changed) => Some("the socket watch"),
        () = http_server.serve(all_pages) => Some("the HTTP server"),
        () = probe_server.serve(probe_pages) => Some("the server of probes"),
        result = readiness.report_readiness(is_replacement) => {
            result.context("cannot report that the kubelet is served")?;
            Some("the report")
        }
        () = wait_until_replace_ends(is_replacement) => {
            tracing::warn!(
                "the reload of the service ended before this instance was its main process, exiting"
            );
            None
        }
        () = watch_for_instance_ends(other_instances, instance_changes, other_instances_ended, reload.clone()) => {
            Some("the watch of other instances")
        }
        () = hang_ups.forward(reload) => Some("the SIGHUP handler"),
    };
    supervisor.stop().await;
    match ended_task {
        Some(part) => bail!("{part} ended"),
        None => Ok(()),
    }
}

/// Decides whether this instance serves the kubelet, so that the earlier instance, which it
/// replaces, may end.
struct Readiness {
    state: StateSources,
    pending_handovers: PendingHandovers,
    kubelet_socket: PathBuf,
}

impl Readiness {
    /// Waits until the earlier instance may end, and then writes the line `ready` to standard
    /// output for `boathook-plugin replace`. Writes nothing if `is_wanted` is false. Returns only
    /// if the line cannot be written.
    async fn report_readiness(&self, is_wanted: bool) -> io::Result<()> {
        const POLL_INTERVAL: Duration = Duration::from_millis(50);
        if is_wanted {
            let mut last_reason = String::new();
            while let Err(reason) = self.check() {
                if reason != last_reason {
                    tracing::info!("the earlier instance cannot end yet: {reason}");
                    last_reason = reason;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            command_line::print_lines("ready\n")?;
        }
        std::future::pending().await
    }

    /// Returns an error with the reason if an earlier instance must not end yet.
    fn check(&self) -> Result<(), String> {
        // Without a kubelet no instance serves anything, so the earlier instance may end.
        if !is_served(&self.kubelet_socket) {
            return Ok(());
        }
        self.state.check_readiness()?;
        if self.pending_handovers.is_empty() {
            Ok(())
        } else {
            Err("the handover of a resource has not ended".to_owned())
        }
    }
}

/// Waits until `boathook-plugin replace` has ended without making this instance the main process of
/// the systemd service. Never returns if this instance becomes the main process, or if it replaces
/// no other instance.
async fn wait_until_replace_ends(is_replacement: bool) {
    if is_replacement {
        let (sender, is_main_process) = oneshot::channel();
        // `boathook-plugin replace` writes a byte once this is the main process. If `replace` ends
        // without doing so, the read fails.
        std::thread::spawn(move || {
            let is_main_process = io::stdin().read_exact(&mut [0]).is_ok();
            // The result is ignored, because nobody receives it while this process ends.
            let _ = sender.send(is_main_process);
        });
        if is_main_process.await != Ok(true) {
            return;
        }
    }
    std::future::pending().await
}

/// The HTTP server for one of the options `--http` and `--probes`.
struct PageServer {
    option: &'static str,
    address: Option<SocketAddr>,
    listener: Option<TcpListener>,
}

impl PageServer {
    /// Listens at `address`. If `waits_for_address` is true and the address is in use, the earlier
    /// instance may still listen there. That is no error, and [`PageServer::serve`] tries again.
    fn new(
        option: &'static str,
        address: Option<SocketAddr>,
        waits_for_address: bool,
    ) -> anyhow::Result<Self> {
        let listener = match address {
            Some(address) => match listen(option, address) {
                Err(error) if waits_for_address && is_address_in_use(&error) => None,
                result => Some(result?),
            },
            None => None,
        };
        Ok(PageServer {
            option,
            address,
            listener,
        })
    }

    async fn serve(self, pages: Pages) {
        const RETRY_DELAY: Duration = Duration::from_millis(200);
        // The address is reported as in use only after this time, within which the earlier instance
        // usually ends.
        const REPORT_DELAY: Duration = Duration::from_secs(5);
        let Some(address) = self.address else {
            return std::future::pending().await;
        };
        let start = Instant::now();
        let mut is_reported = false;
        let listener = match self.listener {
            Some(listener) => listener,
            None => loop {
                match listen(self.option, address) {
                    Ok(listener) => break listener,
                    Err(error) if !is_reported && start.elapsed() > REPORT_DELAY => {
                        tracing::warn!(
                            "{error:#}; trying again until no other process listens there"
                        );
                        is_reported = true;
                    }
                    Err(_) => {}
                }
                tokio::time::sleep(RETRY_DELAY).await;
            },
        };
        http_server::serve(listener, Limits::PAGE_SERVER, pages).await;
    }
}

fn is_address_in_use(error: &anyhow::Error) -> bool {
    let io_error: Option<&io::Error> = error.downcast_ref();
    io_error.is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Whenever no other instance is left, sets `have_ended` and causes a scan. This scan takes over
/// the CDI files of the ended instances.
async fn watch_for_instance_ends(
    mut other_instances: OtherInstances,
    mut socket_notifications: Notifications,
    have_ended: Arc<AtomicBool>,
    reload: Notifier,
) {
    loop {
        other_instances
            .wait_for_end(&mut socket_notifications)
            .await;
        have_ended.store(true, Ordering::Relaxed);
        reload.notify();
    }
}

fn listen(option: &'static str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let describe_failure = || format!("{option} {address}: cannot listen");
    let listener = http_server::listen(address).with_context(describe_failure)?;
    let address = listener.local_addr().with_context(describe_failure)?;
    let pages = match option {
        "--probes" => "health",
        _ => "metrics and health",
    };
    tracing::info!("serving {pages} at http://{address}");
    Ok(listener)
}

/// Notifies the servers when the kubelet's socket or a socket of the plugin is created or removed.
/// The servers also poll the sockets, in case inotify fails.
async fn watch_sockets(kubelet_dir: &KubeletDir, notifier: Notifier) {
    let directories = vec![
        kubelet_dir.device_plugins_dir(),
        kubelet_dir.plugins_registry_dir(),
    ];
    let notify = |change: DirectoryChange<'_>| {
        let is_relevant = match change {
            DirectoryChange::Unknown => true,
            DirectoryChange::Entry(name) => {
                let name = name.to_string_lossy();
                name == KUBELET_SOCKET_NAME || name.starts_with(SOCKET_PREFIX)
            }
        };
        if is_relevant {
            notifier.notify();
        }
    };
    watch_directories(directories, WatchedEvents::Entries, notify).await;
}

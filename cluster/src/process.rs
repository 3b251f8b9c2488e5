//! Runs the programs of this crate until a signal ends them, with their asynchronous runtime and
//! limit of open files.

use anyhow::Context;
use daemon::signals::EndSignals;
use kube::Client;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Runs `serve` on a new asynchronous runtime until it ends, or until this process receives
/// SIGTERM, SIGINT or SIGQUIT. An end by such a signal is a success.
pub(crate) fn serve_until_signal(
    serve: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    raise_open_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    runtime.block_on(async {
        let mut end_signals = EndSignals::new()?;
        tokio::select! {
            result = serve => result,
            () = end_signals.wait() => Ok(()),
        }
    })
}

/// Returns a client of the API server, configured by the pod's service account or by a kubeconfig
/// file.
pub(crate) async fn connect_to_api_server() -> anyhow::Result<Client> {
    Client::try_default()
        .await
        .context("cannot configure the client of the API server")
}

/// Raises the soft limit of open files to the hard limit, because each connection needs an open
/// file. Engines start containers with a soft limit of 1,024, which only programs that use
/// select(2) need.
fn raise_open_file_limit() {
    let open_files = Resource::RLIMIT_NOFILE;
    let result = getrlimit(open_files)
        .and_then(|(_, hard_limit)| setrlimit(open_files, hard_limit, hard_limit));
    if let Err(error) = result {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

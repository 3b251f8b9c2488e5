//! The start and the end of the scheduler and the webhook: exit codes, the asynchronous runtime,
//! signals and the limit of open files.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use command_line::FAILURE;
use kube::Client;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// Parses the command line of this process and calls `run` with it. If `run` fails, the error is
/// printed on stderr with the program's name.
pub fn run_program<C: Parser>(name: &str, run: impl FnOnce(C) -> anyhow::Result<()>) -> ExitCode {
    match run(command_line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command_line::report(name, &format!("{error:#}"), false);
            ExitCode::from(FAILURE)
        }
    }
}

/// Runs `serve` on a new asynchronous runtime until it ends, or until this process receives
/// SIGTERM or SIGINT. Both signals count as success.
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
        tokio::select! {
            result = serve => result,
            result = wait_for_end_signal() => result,
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

/// Raises the soft limit of open files to the hard limit. Each connection needs an open file, and
/// engines start containers with a soft limit of 1,024, because programs that use select(2)
/// cannot handle more.
fn raise_open_file_limit() {
    let files = Resource::RLIMIT_NOFILE;
    let result =
        getrlimit(files).and_then(|(_, hard_limit)| setrlimit(files, hard_limit, hard_limit));
    if let Err(error) = result {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

async fn wait_for_end_signal() -> anyhow::Result<()> {
    let install = |kind| signal(kind).context("cannot install a signal handler");
    let mut terminate = install(SignalKind::terminate())?;
    let mut interrupt = install(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

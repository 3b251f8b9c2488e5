//! Starts the programs, handles their signals and raises their limits.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use command_line::FAILURE;
use kube::Client;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// Runs a program by its command line, and reports its failure.
pub fn main<C: Parser>(name: &str, run: impl FnOnce(C) -> anyhow::Result<()>) -> ExitCode {
    match run(command_line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command_line::report(name, &format!("{error:#}"), false);
            ExitCode::from(FAILURE)
        }
    }
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(serve: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    raise_open_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    runtime.block_on(async {
        tokio::select! {
            ended = serve => ended,
            requested = wait_for_end_signal() => requested,
        }
    })
}

pub(crate) async fn client() -> anyhow::Result<Client> {
    Client::try_default()
        .await
        .context("cannot configure the client of the API server")
}

/// Raises the limit of open files to the maximum for an unprivileged process. Each connection
/// is a file, and engines start containers with a limit of 1,024, for programs that use
/// select(2).
fn raise_open_file_limit() {
    let files = Resource::RLIMIT_NOFILE;
    let raised = getrlimit(files).and_then(|(_, most)| setrlimit(files, most, most));
    if let Err(error) = raised {
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

//! `boathook-plugin`: see the crate `plugin`.

mod cli;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .init();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("boathook-plugin: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: cli::Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime can't start")?;
    let ended = runtime.block_on(plugin::run::run(cli.options()));
    // A look at the host may hang in a driver: it is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(50));
    Ok(ended?)
}

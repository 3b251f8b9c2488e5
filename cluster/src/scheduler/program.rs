//! Defines the command line of `boathook-scheduler`, and runs its tasks: two watches, and two HTTP
//! servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use daemon::command_line::{LogOptions, parse_listen_address};
use daemon::http_server;
use daemon::http_server::tls::{self, Identity};

use super::config::Config;
use super::extender::{Extender, LIMITS};
use super::feed;
use crate::watch::RETRY_DELAYS;
use crate::{pages, process};

/// An extender of kube-scheduler that prefers nodes whose devices are partly used
#[derive(Debug, Parser)]
#[command(name = "boathook-scheduler", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  boathook-scheduler run --tls-dir /etc/tls       serve kube-scheduler by HTTPS
  boathook-scheduler run --listen 127.0.0.1:8888  serve a kube-scheduler on this machine
  boathook-scheduler run --config scheduler.toml  score by another file's resources

Exit codes:
  0  success; run: ended by SIGTERM, SIGINT or SIGQUIT
  1  failure
  2  invalid command line";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve kube-scheduler until SIGTERM
    Run(RunOptions),
}

#[derive(Debug, Args)]
struct RunOptions {
    /// Configuration file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/boathook/scheduler.toml"
    )]
    config: PathBuf,

    /// Listen address for kube-scheduler
    #[arg(long = "listen", value_name = "ADDRESS:PORT", default_value = "[::]:8888", value_parser = parse_listen_address)]
    listen_address: SocketAddr,

    /// Directory with tls.crt and tls.key; without it the extender serves plain HTTP
    #[arg(long, value_name = "DIR")]
    tls_dir: Option<PathBuf>,

    /// Listen address for /metrics, /healthz and /readyz
    #[arg(long = "http", value_name = "ADDRESS:PORT", default_value = "[::]:8081", value_parser = parse_listen_address)]
    http_address: SocketAddr,

    #[command(flatten)]
    log: LogOptions,
}

impl Cli {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let Command::Run(options) = self.command;
        options.log.start();
        process::serve_until_signal(serve(options))?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn serve(options: RunOptions) -> anyhow::Result<()> {
    let config = Config::read(&options.config).context("configuration")?;
    let identity = match &options.tls_dir {
        None => None,
        Some(dir) => Some(Identity::from_dir(dir)?),
    };
    let listener = pages::listen(options.listen_address)?;
    let client = process::connect_to_api_server().await?;
    let extender = Extender::new(config);
    let find_unready_reason = {
        let extender = Arc::clone(&extender);
        move || {
            let is_complete = extender.view().is_complete();
            (!is_complete).then_some("nodes and pods have not been listed yet")
        }
    };
    let registry = extender.metrics().registry();
    let server = async {
        let handler = extender.handler();
        match (identity, options.tls_dir) {
            (Some(identity), Some(dir)) => {
                let server_identity = Arc::clone(&identity);
                tokio::select! {
                    () = http_server::serve_tls(listener, LIMITS, handler, server_identity) => {}
                    () = tls::reload_on_change(identity, dir) => {}
                }
            }
            _ => http_server::serve(listener, LIMITS, handler).await,
        }
    };
    pages::start_server(options.http_address, registry, find_unready_reason)?;
    tracing::info!("listening on {}", options.listen_address);
    tokio::select! {
        () = feed::watch_nodes(client.clone(), Arc::clone(&extender), RETRY_DELAYS) => {}
        () = feed::watch_pods(client, Arc::clone(&extender), RETRY_DELAYS) => {}
        () = server => {}
    }
    anyhow::bail!("a task ended unexpectedly")
}

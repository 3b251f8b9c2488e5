//! Defines the command line of `boathook-webhook`, and runs its tasks: two watches, and two HTTP
//! servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use daemon::command_line;
use daemon::command_line::{LogOptions, parse_listen_address};
use daemon::http_server;
use daemon::http_server::tls::{self, Identity};

use super::api::{AcceleratorFunction, FpgaRegion, build_definitions_yaml};
use super::feed::watch_mappings;
use super::review::{LIMITS, Reviewer};
use crate::watch::RETRY_DELAYS;
use crate::{pages, process};

/// Replace the names by which pods request FPGAs with the device plugin's resources.
#[derive(Debug, Parser)]
#[command(name = "boathook-webhook", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  boathook-webhook run                      serve the API server, with the certificate in /tls
  boathook-webhook run --tls-dir /etc/tls   with another one
  boathook-webhook crds                     print the CustomResourceDefinitions, as YAML

Exit codes:
  0  success; run: ended by SIGTERM, SIGINT or SIGQUIT
  1  failure
  2  invalid command line";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API server until SIGTERM
    Run(RunOptions),
    /// Print the CustomResourceDefinitions
    Crds,
}

#[derive(Debug, Args)]
struct RunOptions {
    /// Listen address for the API server
    #[arg(long = "listen", value_name = "ADDRESS:PORT", default_value = "[::]:9443", value_parser = parse_listen_address)]
    listen_address: SocketAddr,

    /// Listen address for /metrics, /healthz and /readyz
    #[arg(long = "http", value_name = "ADDRESS:PORT", default_value = "[::]:8081", value_parser = parse_listen_address)]
    http_address: SocketAddr,

    /// Directory with tls.crt and tls.key, which are read again as they change
    #[arg(long, value_name = "DIR", default_value = "/tls")]
    tls_dir: PathBuf,

    #[command(flatten)]
    log: LogOptions,
}

impl Cli {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Crds => command_line::print_lines(&build_definitions_yaml()?)?,
            Command::Run(options) => {
                options.log.start();
                process::serve_until_signal(serve(options))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn serve(options: RunOptions) -> anyhow::Result<()> {
    let identity = Identity::from_dir(&options.tls_dir)?;
    let listener = pages::listen(options.listen_address)?;
    let client = process::connect_to_api_server().await?;
    let reviewer = Arc::new(Reviewer::default());
    let find_unready_reason = {
        let reviewer = Arc::clone(&reviewer);
        move || reviewer.find_unready_reason()
    };
    let registry = reviewer.metrics().registry();
    let function_watch =
        watch_mappings::<AcceleratorFunction>(client.clone(), Arc::clone(&reviewer), RETRY_DELAYS);
    let region_watch = watch_mappings::<FpgaRegion>(client, Arc::clone(&reviewer), RETRY_DELAYS);
    let handler = reviewer.handler();
    let server_identity = Arc::clone(&identity);
    pages::start_server(options.http_address, registry, find_unready_reason)?;
    tracing::info!("listening on {}", options.listen_address);
    tokio::select! {
        () = function_watch => {}
        () = region_watch => {}
        () = http_server::serve_tls(listener, LIMITS, handler, server_identity) => {}
        () = tls::reload_on_change(identity, options.tls_dir) => {}
    }
    anyhow::bail!("a task ended unexpectedly")
}

//! Defines the command line of `boathook-webhook`, and runs its tasks: two watches, and two HTTP
//! servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use command_line::{LogOptions, parse_listen_address};
use http_server::tls::{self, Identity};

use super::api::{AcceleratorFunction, FpgaRegion, definitions_yaml};
use super::feed::watch_mappings;
use super::review::{LIMITS, Reviewer};
use crate::watch::RETRY_DELAYS;
use crate::{pages, process};

/// Replace the names by which pods request FPGAs with the device plugin's resources.
#[derive(Debug, Parser)]
#[command(name = "boathook-webhook", version, after_help = HELP_END)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP_END: &str = "\
Examples:
  boathook-webhook run                      serve the API server, with the certificate in /tls
  boathook-webhook run --tls-dir /etc/tls   with another one
  boathook-webhook crds                     print the CustomResourceDefinitions, as YAML

Exit codes:
  0  success; run: ended by SIGTERM or SIGINT
  1  failure
  2  invalid command line";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API server until SIGTERM
    Run(Run),
    /// Print the CustomResourceDefinitions
    Crds,
}

#[derive(Debug, Args)]
struct Run {
    /// Listen address for the API server
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:9443", value_parser = parse_listen_address)]
    listen: SocketAddr,

    /// Listen address for /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8081", value_parser = parse_listen_address)]
    http: SocketAddr,

    /// Directory with tls.crt and tls.key, which are read again as they change
    #[arg(long, value_name = "DIR", default_value = "/tls")]
    tls_dir: PathBuf,

    #[command(flatten)]
    log: LogOptions,
}

impl Cli {
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Crds => Ok(command_line::print_lines(&definitions_yaml()?)?),
            Command::Run(run) => {
                run.log.start();
                process::serve_until_signal(serve(run))
            }
        }
    }
}

async fn serve(run: Run) -> anyhow::Result<()> {
    let identity = Identity::from_dir(&run.tls_dir)?;
    let listener = pages::listen(run.listen)?;
    let client = process::connect_to_api_server().await?;
    let reviewer = Arc::new(Reviewer::default());
    let not_ready_reason = {
        let reviewer = Arc::clone(&reviewer);
        move || reviewer.not_ready_reason()
    };
    let registry = reviewer.metrics().registry();
    let function_watch =
        watch_mappings::<AcceleratorFunction>(client.clone(), Arc::clone(&reviewer), RETRY_DELAYS);
    let region_watch = watch_mappings::<FpgaRegion>(client, Arc::clone(&reviewer), RETRY_DELAYS);
    let handler = reviewer.handler();
    let server_identity = Arc::clone(&identity);
    pages::start_server(run.http, registry, not_ready_reason)?;
    tracing::info!("listening on {}", run.listen);
    tokio::select! {
        () = function_watch => {}
        () = region_watch => {}
        () = http_server::serve_tls(listener, LIMITS, handler, server_identity) => {}
        () = tls::reload_on_change(identity, run.tls_dir) => {}
    }
    anyhow::bail!("a task ended unexpectedly")
}

//! The process `boathook-webhook`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use command_line::{LogOptions, listen_address};
use kube::Client;
use time::OffsetDateTime;
use tokio::net::TcpListener;

use super::api::{AcceleratorFunction, FpgaRegion, definitions_yaml};
use super::certificate::shared::{Names, reconcile};
use super::feed::follow;
use super::review::Reviewer;
use crate::http::{self, Identity, Probes};
use crate::retry::Retry;
use crate::shutdown;

/// How often the Secret and the webhook configuration are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Replace the names by which pods request FPGAs with the device plugin's resources.
#[derive(Debug, Parser)]
#[command(name = "boathook-webhook", version, after_help = HELP_END)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP_END: &str = "\
Examples:
  boathook-webhook run                      serve the API server, with a certificate of its own
  boathook-webhook run --tls-dir /etc/tls   with a certificate of cert-manager
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
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:9443", value_parser = listen_address)]
    listen: SocketAddr,

    /// Listen address for /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8081", value_parser = listen_address)]
    http: SocketAddr,

    /// Directory with tls.crt and tls.key, such as a Secret of cert-manager; without it
    /// the webhook has a certificate authority of its own
    #[arg(long, value_name = "DIR")]
    tls_dir: Option<PathBuf>,

    /// Namespace of the Service and the Secret [default: that of the pod]
    #[arg(long, value_name = "NAME", conflicts_with = "tls_dir")]
    namespace: Option<String>,

    /// Service whose names the certificate has
    #[arg(long, value_name = "NAME", default_value = "boathook-webhook")]
    service: String,

    /// Secret in which the replicas share the certificate
    #[arg(long, value_name = "NAME", default_value = "boathook-webhook-tls")]
    secret: String,

    /// MutatingWebhookConfiguration that gets the certificate authority
    #[arg(long, value_name = "NAME", default_value = "boathook-webhook")]
    configuration: String,

    /// The log.
    #[command(flatten)]
    log: LogOptions,
}

impl Cli {
    /// Runs the command of the command line.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Crds => Ok(command_line::print(&definitions_yaml()?)?),
            Command::Run(run) => {
                run.log.start();
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .context("cannot start the asynchronous runtime")?;
                runtime.block_on(serve(run))
            }
        }
    }
}

async fn serve(run: Run) -> anyhow::Result<()> {
    let reviews = listen(run.listen).await?;
    let pages = listen(run.http).await?;
    let client = Client::try_default()
        .await
        .context("cannot configure the client of the API server")?;
    let reviewer = Arc::new(Reviewer::default());
    let watched = Arc::clone(&reviewer);
    let probes = Probes {
        waiting_for: Box::new(move || watched.waits_for().map(str::to_owned)),
        registry: reviewer.metrics().registry(),
    };
    let retry = Retry::default();
    let watches = [
        tokio::spawn(follow::<AcceleratorFunction>(
            client.clone(),
            Arc::clone(&reviewer),
            retry,
        )),
        tokio::spawn(follow::<FpgaRegion>(
            client.clone(),
            Arc::clone(&reviewer),
            retry,
        )),
    ];
    tracing::info!("listening on {}", run.listen);
    let answer = answer(reviews, client, Arc::clone(&reviewer), run);
    tokio::select! {
        _ = futures::future::select_all(watches) => {}
        () = http::serve(pages, probes.router(), None) => {}
        result = answer => result?,
        result = shutdown::requested() => return result,
    }
    anyhow::bail!("a task ended unexpectedly")
}

/// Answers reviews, with the certificate as it is renewed.
async fn answer(
    listener: TcpListener,
    client: Client,
    reviewer: Arc<Reviewer>,
    run: Run,
) -> anyhow::Result<()> {
    if let Some(dir) = run.tls_dir {
        let identity = Identity::from_dir(&dir)?;
        reviewer.certified();
        tokio::select! {
            () = http::serve(listener, reviewer.router(), Some(Arc::clone(&identity))) => {}
            () = http::reload(identity, dir) => {}
        }
        return Ok(());
    }
    let names = Names {
        namespace: run
            .namespace
            .unwrap_or_else(|| client.default_namespace().to_owned()),
        service: run.service,
        secret: run.secret,
        configuration: run.configuration,
    };
    serve_shared(listener, &client, &reviewer, &names, CHECK_INTERVAL).await
}

/// Answers reviews with the certificate that replicas share, which is checked at each
/// interval.
pub async fn serve_shared(
    listener: TcpListener,
    client: &Client,
    reviewer: &Arc<Reviewer>,
    names: &Names,
    interval: Duration,
) -> anyhow::Result<()> {
    let mut listener = Some(listener);
    let mut identity: Option<Arc<Identity>> = None;
    let mut delays = Retry::default().delays();
    let mut serving = tokio::task::JoinSet::new();
    loop {
        let material = reconcile(client, names, OffsetDateTime::now_utc()).await;
        let wait = match material {
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::error!("cannot check the certificate, retrying: {error:#}");
                delays.next().unwrap_or(interval).min(interval)
            }
            Ok(material) => {
                let (chain, key) = (&material.current.certificate, &material.current.key);
                match &identity {
                    Some(identity) => identity.replace(chain.as_bytes(), key.as_bytes())?,
                    None => {
                        let new = Arc::new(Identity::new(chain.as_bytes(), key.as_bytes())?);
                        if let Some(listener) = listener.take() {
                            let router = reviewer.router();
                            serving.spawn(http::serve(listener, router, Some(Arc::clone(&new))));
                            reviewer.certified();
                        }
                        identity = Some(new);
                    }
                }
                delays = Retry::default().delays();
                let end = material.current.ends.unix_timestamp();
                reviewer.metrics().certificate_end.set(end);
                interval
            }
        };
        tokio::time::sleep(wait).await;
    }
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address}"))
}

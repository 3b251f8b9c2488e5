//! The command line of `boathook-plugin`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use plugin::host_program;
use plugin::run::Options;
use plugin::server::{RegisterBy, Timing};

/// Tells the kubelet of this node's devices, as the device classes describe them.
#[derive(Debug, Parser)]
#[command(name = "boathook-plugin", version)]
pub(crate) struct Cli {
    /// The configuration file [default: /etc/boathook/config.toml, which may be absent]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    serve: Serve,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print what would be advertised, and end; exit 1 if a class or a device had to be left out
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Become a program of a host that is mounted somewhere
    #[command(name = host_program::IN_ROOT, hide = true)]
    InRoot {
        /// The host's root
        root: PathBuf,
        /// The program, as its path is there
        program: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct Serve {
    /// The kubelet's root directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,

    /// How the kubelet learns of the resources
    #[arg(long, value_name = "METHOD", default_value = "kubelet")]
    register: Register,

    /// How often to look at the host when nothing tells of a change
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    rescan: Duration,

    /// How long a device that is missing counts as unhealthy, before it is gone
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    forget: Duration,

    /// How long to wait for the kubelet's answer to a registration
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    register_timeout: Duration,

    /// End when the kubelet has read the list of every resource; exit 1 if that takes longer than
    /// the time to register, or if there is no resource
    #[arg(long)]
    once: bool,

    /// Serve /metrics, /healthz and /readyz here; without it, nowhere
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,

    /// How messages are written to stderr
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Register {
    /// Tell it at kubelet.sock
    Kubelet,
    /// Let it find our sockets in plugins_registry
    Watcher,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One object a line
    Json,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    let fits = (0.1..=86_400.0).contains(&seconds);
    fits.then(|| Duration::from_secs_f64(seconds))
        .ok_or_else(|| "not from 0.1 to 86400".to_owned())
}

impl Cli {
    pub(crate) fn log_format(&self) -> LogFormat {
        self.serve.log_format
    }

    /// What to run with.
    pub(crate) fn options(self) -> Options {
        let serve = self.serve;
        Options {
            kubelet_dir: serve.kubelet_dir,
            register_by: match serve.register {
                Register::Kubelet => RegisterBy::Kubelet,
                Register::Watcher => RegisterBy::Watcher,
            },
            config: self.config,
            rescan: serve.rescan,
            forget: serve.forget,
            timing: Timing {
                register: serve.register_timeout,
                ..Timing::default()
            },
            once: serve.once,
            http: serve.http,
        }
    }
}

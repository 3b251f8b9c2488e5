//! The command line of `boathook-dra`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use command_line::{LogOptions, listen_address};
use device_class::name::ClassName;
use host_inventory::host_program;

use crate::Options;

/// Offer this node's devices to resource claims, as the device classes describe them.
#[derive(Debug, Parser)]
#[command(name = "boathook-dra", version, after_help = HELP_END)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const HELP_END: &str = "\
Examples:
  boathook-dra run --node-name worker-1 --host-root /host  in a container
  boathook-dra device-class dummy-npu                      the DeviceClass, for kubectl apply
  boathook-dra run --node-name worker-1 --unhealthy=no-execute  pods with a sick device end

Exit codes:
  0  success; run: ended by SIGTERM or SIGINT
  1  failure
  2  invalid command line";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the kubelet until SIGTERM
    Run(Box<Run>),
    /// Print the Kubernetes objects DeviceClass of classes
    DeviceClass {
        #[arg(value_name = "CLASS", required = true, value_parser = class_name)]
        classes: Vec<ClassName>,
        /// Configuration file [default: /etc/boathook/config.toml, if it exists]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Change the root directory and execute a program there
    #[command(name = host_program::IN_ROOT, hide = true)]
    InRoot {
        /// The root directory
        root: PathBuf,
        /// The path of the program below it
        program: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// The options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The node's name in the cluster
    #[arg(long, value_name = "NAME")]
    node_name: String,

    /// The uid of this pod, which sockets are named by, so that a new instance can serve
    /// before the old one ends
    #[arg(long, value_name = "UID")]
    pod_uid: Option<String>,

    /// The name of this pod, by which a complete list of pods from the kubelet is recognised;
    /// without it a device that the plugin gave to a pod that has ended may stay tainted
    #[arg(long, value_name = "NAME")]
    pod_name: Option<String>,

    /// Configuration file [default: /etc/boathook/config.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where the host's / is mounted, such as /host in a container; paths in the
    /// configuration are relative to it
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    host_root: Option<PathBuf>,

    /// The kubelet's root directory, at its path on the host
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,

    /// Directory of CDI specifications, at its path on the host
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi", value_parser = absolute)]
    cdi: PathBuf,

    /// The hook, as a path on the host
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "/opt/boathook/current/bin/boathook",
        value_parser = absolute
    )]
    hook: PathBuf,

    /// What the taint of an unhealthy device does to pods
    #[arg(long, value_name = "EFFECT", default_value = "no-schedule")]
    unhealthy: Effect,

    /// Rescan interval (fallback when no event arrives)
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    rescan: Duration,

    /// Listen address for /metrics, /healthz and /readyz, such as 127.0.0.1:9912;
    /// disabled if unset
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address)]
    http: Option<SocketAddr>,

    /// Listen address for /healthz and /readyz alone; disabled if unset
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address)]
    probes: Option<SocketAddr>,

    /// The log.
    #[command(flatten)]
    pub log: LogOptions,
}

/// The effect of a taint.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Effect {
    /// None is placed on the device
    NoSchedule,
    /// Those that use it are deleted, too
    NoExecute,
}

impl From<Box<Run>> for Options {
    fn from(run: Box<Run>) -> Self {
        Options {
            node: run.node_name,
            instance: run.pod_uid,
            pod: run.pod_name,
            kubelet_dir: run.kubelet_dir,
            config: run.config,
            host_root: run.host_root,
            cdi: run.cdi,
            hook: run.hook,
            rescan: run.rescan,
            effect: match run.unhealthy {
                Effect::NoSchedule => "NoSchedule",
                Effect::NoExecute => "NoExecute",
            },
            http: run.http,
            probes: run.probes,
        }
    }
}

fn class_name(text: &str) -> Result<ClassName, String> {
    ClassName::try_from(text.to_owned()).map_err(|error| error.to_string())
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.is_absolute() {
        true => Ok(path),
        false => Err("give an absolute path".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(number @ 1..=86_400) => Ok(Duration::from_secs(number)),
        _ => Err("give a number of seconds from 1 to 86400".to_owned()),
    }
}

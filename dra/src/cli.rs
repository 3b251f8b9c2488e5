//! The command line of `boathook-dra`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use daemon::command_line::{ChrootProgram, LogOptions, NodeOptions, parse_absolute_path};
use daemon::host_inventory::host_program;
use device_class::name::ClassName;
use host_files::release_lock::ReleaseName;

use crate::names::is_dns_subdomain;

/// Offer this node's devices to resource claims, as the device classes describe them.
#[derive(Debug, Parser)]
#[command(name = "boathook-dra", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  boathook-dra run --node-name worker-1 --host-root /host  in a container
  boathook-dra device-class dummy-npu                      the DeviceClass, for kubectl apply
  boathook-dra run --node-name worker-1 --unhealthy=no-execute  pods with a sick device end

Exit codes:
  0  success; run: ended by SIGTERM, SIGINT or SIGQUIT
  1  failure
  2  invalid command line";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the kubelet until SIGTERM
    Run(Box<RunOptions>),
    /// Print the Kubernetes objects DeviceClass of classes
    DeviceClass {
        #[arg(value_name = "CLASS", required = true)]
        classes: Vec<ClassName>,
        /// Configuration file [default: /etc/boathook/config.toml, if it exists]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The root below which the class files are; in a container where the host's is mounted
        #[arg(long, value_name = "DIR", default_value = "/")]
        host_root: PathBuf,
    },
    /// Change the root directory and execute a program there
    #[command(name = host_program::IN_ROOT_SUBCOMMAND, hide = true)]
    ExecInRoot(ChrootProgram),
}

/// The options of `run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The node's name in the cluster
    #[arg(long, value_name = "NAME", value_parser = parse_node_name)]
    pub(crate) node_name: String,

    /// The uid of this pod, which sockets are named by, so that a new instance can serve
    /// before the old one ends
    #[arg(long, value_name = "UID")]
    pub(crate) pod_uid: Option<String>,

    /// The name of this pod, by which a complete list of pods from the kubelet is recognised;
    /// without it a device that the plugin gave to a pod that has ended may stay tainted
    #[arg(long, value_name = "NAME")]
    pub(crate) pod_name: Option<String>,

    /// Name of the release in the cluster; a second release on this node is refused
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) release: Option<ReleaseName>,

    /// The options that the DRA driver has in common with the device plugin.
    #[command(flatten)]
    pub(crate) node_options: NodeOptions,

    /// The hook's configuration, as a path on the host [default: /etc/boathook/config.toml]
    #[arg(long, value_name = "FILE", value_parser = parse_absolute_path)]
    pub(crate) hook_config: Option<PathBuf>,

    /// What the taint of an unhealthy device does to pods
    #[arg(
        long = "unhealthy",
        value_name = "EFFECT",
        default_value = "no-schedule"
    )]
    pub(crate) taint_effect: TaintEffect,

    /// The log.
    #[command(flatten)]
    pub log: LogOptions,
}

/// Parses the name of a node. The name must be a DNS subdomain, because it becomes a part of URLs
/// of the API server.
fn parse_node_name(text: &str) -> Result<String, String> {
    if is_dns_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err("give the name of a node (a DNS subdomain)".to_owned())
    }
}

/// The effect of the taint on an unhealthy device.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TaintEffect {
    /// None is placed on the device
    NoSchedule,
    /// Those that use it are deleted, too
    NoExecute,
}

impl TaintEffect {
    /// Returns the value of the field `effect` of a taint in a ResourceSlice.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            TaintEffect::NoSchedule => "NoSchedule",
            TaintEffect::NoExecute => "NoExecute",
        }
    }
}

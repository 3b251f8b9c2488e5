//! The command line of `boathook-plugin`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use daemon::command_line::{
    ChrootProgram, LogOptions, NodeOptions, parse_absolute_path, parse_seconds,
};
use daemon::host_inventory::host_program;
use device_class::name::ClassName;
use host_files::release_lock::ReleaseName;

use crate::server::RegistrationMethod;

/// Advertise this node's devices to the kubelet, as the device classes describe them.
#[derive(Debug, Parser)]
#[command(
    name = "boathook-plugin",
    version,
    args_conflicts_with_subcommands = true,
    after_help = AFTER_HELP
)]
pub struct Cli {
    /// The command; the default is `run`.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The options of `run`, without a command.
    #[command(flatten)]
    pub run: RunOptions,
}

const AFTER_HELP: &str = "\
Examples:
  boathook-plugin list                       the devices that would be advertised
  boathook-plugin run --host-root /host      in a container with the host mounted at /host
  boathook-plugin check-engine               whether the node's engine does its part
  boathook-plugin run --http 127.0.0.1:9911  with metrics and probes

Exit codes:
  0  success; run: ended by SIGTERM, SIGINT or SIGQUIT
  1  failure; list: a class or a device is left out; open-devices: one cannot be opened
  2  invalid command line";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the kubelet until SIGTERM; the default command
    Run(Box<RunOptions>),
    /// List the devices that would be advertised
    List(ListOptions),
    /// Fail unless the node's engine brings the hook by CDI, which `run` relies on
    CheckEngine {
        /// Where the host's / is mounted
        #[arg(long, value_name = "DIR", default_value = "/", value_parser = parse_absolute_path)]
        host_root: PathBuf,
        /// The engine's socket [default: each of those of the known engines that exists]
        #[arg(long, value_name = "FILE", value_parser = parse_absolute_path)]
        socket: Option<PathBuf>,
    },
    /// Replace the running instance of the host's service by this version (systemctl reload)
    Replace {
        /// The instance's process
        #[arg(value_name = "PID")]
        pid: i32,
        /// The time that this version has until it serves the kubelet
        #[arg(long, value_name = "SECONDS", default_value = "60", hide = true, value_parser = parse_seconds)]
        ready_timeout: Duration,
    },
    /// Open each device of the current container, and fail if one cannot be opened
    OpenDevices {
        /// The directory with the container's devices
        #[arg(value_name = "DIR", default_value = "/dev", value_parser = parse_absolute_path)]
        directory: PathBuf,
        /// The directory with the container's network interfaces
        #[arg(long, value_name = "DIR", default_value = "/sys/class/net", hide = true, value_parser = parse_absolute_path)]
        interfaces: PathBuf,
    },
    /// Change the root directory and execute a program there
    #[command(name = host_program::IN_ROOT_SUBCOMMAND, hide = true)]
    ExecInRoot(ChrootProgram),
}

/// The options of `list`.
#[derive(Debug, Args)]
pub struct ListOptions {
    /// Only these classes
    #[arg(value_name = "CLASS")]
    pub classes: Vec<ClassName>,
    /// Configuration file [default: /etc/boathook/config.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the host's / is mounted; paths in the configuration are relative to it
    #[arg(long, value_name = "DIR", value_parser = parse_absolute_path)]
    pub host_root: Option<PathBuf>,
    /// Root directory of the kubelet, with the records of resource claims
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Print the result as JSON, and a failure as {"error": ...}
    #[arg(long)]
    pub json: bool,
}

/// The options of `run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The options that the device plugin has in common with the DRA driver.
    #[command(flatten)]
    pub(crate) node_options: NodeOptions,

    /// How to register resources with the kubelet
    #[arg(long = "register", value_name = "METHOD", default_value = "kubelet")]
    pub(crate) registration_method: RegistrationMethod,

    /// Register resources that another plugin serves, too: the kubelet uses the last
    /// one that registers
    #[arg(long)]
    pub(crate) take_over: bool,

    /// Grace period: report a missing device as unhealthy this long before removing it
    #[arg(long = "forget", value_name = "SECONDS", default_value = "60", value_parser = parse_seconds)]
    pub(crate) grace_period: Duration,

    /// Timeout of a registration
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = parse_seconds)]
    pub(crate) register_timeout: Duration,

    /// Name of the release in the cluster; a second release on this node is refused
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) release: Option<ReleaseName>,

    /// The hook's configuration, as a path on the host [default: /etc/boathook/config.toml]
    #[arg(long, value_name = "FILE", value_parser = parse_absolute_path)]
    pub(crate) hook_config: Option<PathBuf>,

    /// File with labels of the node by its devices, for Node Feature Discovery, such as
    /// /etc/kubernetes/node-feature-discovery/features.d/boathook; none is written if unset
    #[arg(long, value_name = "FILE", value_parser = parse_absolute_path)]
    pub(crate) node_labels: Option<PathBuf>,

    /// What brings the hook to a container that has devices
    #[arg(long, value_name = "WAY", default_value = "cdi")]
    pub(crate) delivery: HookDelivery,

    /// Write a line to standard output when an earlier instance may end, and end unless a line
    /// comes at standard input
    #[arg(long, hide = true)]
    pub(crate) report_ready: bool,

    /// The log.
    #[command(flatten)]
    pub log: LogOptions,
}

/// The option with which `replace` starts the new instance: [`RunOptions::report_ready`].
pub(crate) const REPORT_READY_OPTION: &str = "--report-ready";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookDelivery {
    /// The engine, by the devices' names in CDI (containerd 2.0 and later, CRI-O)
    Cdi,
    /// A runtime handler, or a hook directory of the engine (containerd 1.x)
    Handler,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_hook_is_the_one_that_is_installed() {
        let cli = Cli::parse_from(["boathook-plugin"]);
        assert_eq!(
            cli.run.node_options.hook_path,
            PathBuf::from(runtime_config::INSTALLED_HOOK_PATH)
        );
    }
}

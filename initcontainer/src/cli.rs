//! The command line of `boathook-init`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use runtime_config::Engine;

/// Installs the hook on a host, reports on it and removes it.
#[derive(Debug, Parser)]
#[command(name = "boathook-init", version, after_help = HELP_END)]
pub(crate) struct Cli {
    /// Where the host's / is; /host in a container that mounts it there
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    pub(crate) host_root: PathBuf,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const HELP_END: &str = "\
Examples:
  boathook-init install --dry-run                what would change, as a diff
  boathook-init install --engine docker,podman   these engines alone
  boathook-init --host-root /host status         from a container that mounts the host there

Exit codes:
  0  done, or there was nothing to do
  1  it failed, and the host is as it was; or status found something missing
  2  the command line is wrong";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy the programs to the host and tell its engines to call the hook
    Install(Install),
    /// Tell what is installed, configured and loaded, and what is missing
    Status {
        /// Print it for programs
        #[arg(long)]
        json: bool,
    },
    /// Remove everything and leave the host as it was before
    Uninstall {
        /// Look at these engines even if there is no record of them
        #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
        engine: Vec<Engine>,
        /// Print what would be done
        #[arg(long)]
        dry_run: bool,
        /// Make the engines take up the change
        #[arg(long)]
        restart: bool,
        /// Go on although containers can't be stopped afterwards
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Install {
    /// The engines to configure: auto, none, or names (containerd, k3s, rke2,
    /// k0s, microk8s, crio, docker, podman)
    #[arg(long, value_name = "NAME[,NAME]", default_value = "auto")]
    pub(crate) engine: EngineChoice,
    /// Where the programs and classes of this release are [default: beside this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
    /// Take the class files from here instead
    #[arg(long, value_name = "DIR")]
    pub(crate) classes: Option<PathBuf>,
    /// Make the runtime the engine's default
    #[arg(long)]
    pub(crate) set_default: bool,
    /// containerd: call the hook from this OCI spec (see "ctr oci spec"), not by the wrapper
    #[arg(long, value_name = "FILE")]
    pub(crate) base_spec: Option<PathBuf>,
    /// Print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Make the engines take up the change
    #[arg(long)]
    pub(crate) restart: bool,
}

/// Which engines to configure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    /// Those that are found.
    Auto,
    /// These, found or not.
    Named(Vec<Engine>),
}

impl FromStr for EngineChoice {
    type Err = runtime_config::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Named(Vec::new())),
            names => names
                .split(',')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .map(Self::Named),
        }
    }
}

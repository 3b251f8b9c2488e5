//! The command line of `boathook-plugin`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use plugin::run::Options;
use plugin::server::{RegisterBy, Timing};

/// Tells the kubelet of this node's devices, as the device classes describe them.
#[derive(Debug, Parser)]
#[command(name = "boathook-plugin", version)]
pub(crate) struct Cli {
    /// The kubelet's root directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,

    /// How the kubelet learns of the resources: `kubelet` registers at its socket, `watcher` lets
    /// it find ours in plugins_registry
    #[arg(long, value_name = "WAY", default_value = "kubelet", value_parser = register_by)]
    register: RegisterBy,

    /// The configuration file [default: /etc/boathook/config.toml, which may be absent]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How often to look at the host when nothing tells of a change
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    rescan: Duration,

    /// How long to wait for the kubelet's answer to a registration
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    register_timeout: Duration,
}

fn register_by(text: &str) -> Result<RegisterBy, String> {
    match text {
        "kubelet" => Ok(RegisterBy::Kubelet),
        "watcher" => Ok(RegisterBy::Watcher),
        _ => Err("not `kubelet` or `watcher`".to_owned()),
    }
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
    /// What to run with.
    pub(crate) fn options(self) -> Options {
        Options {
            kubelet_dir: self.kubelet_dir,
            register_by: self.register,
            config: self.config,
            rescan: self.rescan,
            timing: Timing {
                register: self.register_timeout,
                ..Timing::default()
            },
        }
    }
}

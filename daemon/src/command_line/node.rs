//! The options that all programs on a node have: the device plugin and the DRA driver.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::command_line::parse_listen_address;

/// The options for the paths of the host's files, the interval between scans, and the addresses of
/// the HTTP servers.
#[derive(Debug, Args)]
pub struct NodeOptions {
    /// Configuration file [default: /etc/boathook/config.toml, if it exists]
    #[arg(long = "config", value_name = "FILE")]
    pub config_path: Option<PathBuf>,

    /// Where the host's / is mounted, such as /host in a container; paths in the
    /// configuration are relative to it
    #[arg(long, value_name = "DIR", value_parser = parse_absolute_path)]
    pub host_root: Option<PathBuf>,

    /// The kubelet's root directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,

    /// Directory of CDI specifications, from which the engine reads them
    #[arg(
        long = "cdi",
        value_name = "DIR",
        default_value = "/var/run/cdi",
        value_parser = parse_absolute_path
    )]
    pub cdi_dir: PathBuf,

    /// The hook, as a path on the host
    #[arg(
        long = "hook",
        value_name = "FILE",
        default_value = "/opt/boathook/current/bin/boathook-hook",
        value_parser = parse_absolute_path
    )]
    pub hook_path: PathBuf,

    /// Rescan interval (fallback when no event arrives)
    #[arg(
        long = "rescan",
        value_name = "SECONDS",
        default_value = "10",
        value_parser = parse_seconds
    )]
    pub rescan_interval: Duration,

    /// Listen address for /metrics, /healthz and /readyz, such as 127.0.0.1:9911;
    /// disabled if unset
    #[arg(long = "http", value_name = "ADDRESS:PORT", value_parser = parse_listen_address)]
    pub http_address: Option<SocketAddr>,

    /// Listen address for /healthz and /readyz alone; disabled if unset
    #[arg(long = "probes", value_name = "ADDRESS:PORT", value_parser = parse_listen_address)]
    pub probe_address: Option<SocketAddr>,
}

/// A program that is executed with another root directory.
#[derive(Debug, Args)]
pub struct ChrootProgram {
    /// The root directory
    pub root: PathBuf,
    /// The path of the program below it
    pub program: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Parses a path for clap. Returns an error for a relative path.
pub fn parse_absolute_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("give an absolute path".to_owned())
    }
}

/// Parses a duration in seconds for clap. Returns an error if it is shorter than 0.1 seconds or
/// longer than a day.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 0.1..=86_400.0) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give a number of seconds from 0.1 to 86400".to_owned()),
    }
}

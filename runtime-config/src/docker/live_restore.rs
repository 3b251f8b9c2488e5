//! Finds whether containers continue to run while Docker is restarted, which its setting
//! `live-restore` decides.

use std::path::{Path, PathBuf};

use super::api::Runtimes;
use super::{DAEMON, split_byte_order_mark};
use crate::host::HostRoot;

const LIVE_RESTORE_OPTION: &str = "--live-restore";

/// Where a Docker has the setting `live-restore`. The daemon that runs must have it, and so must the
/// next one: a daemon without it ends at its start the containers that an earlier one has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveRestore {
    /// Containers continue to run while Docker is restarted.
    Enabled,
    /// Neither the daemon that runs nor the next one has the setting.
    Disabled,
    /// The file sets it, but the daemon that runs has not read that.
    NotLoaded(PathBuf),
    /// Only the command line of the next daemon sets it.
    OnlyInOptions,
    /// The daemon that runs has it, but the file does not set it for the next one, and the command
    /// line does not either. Docker keeps the setting at a reload after the key was removed.
    Removed(PathBuf),
    /// No daemon answers.
    Unknown,
}

impl LiveRestore {
    /// Asks the daemon that runs, and reads what the next one will read.
    pub fn find(host: &HostRoot) -> Self {
        let config_path = PathBuf::from(DAEMON.find_config_path(host));
        let Some(daemon) = Runtimes::query_daemon(host) else {
            return Self::Unknown;
        };
        let is_loaded = daemon.leaves_containers_running();
        let is_in_file = is_set_in_file(host, &config_path);
        let is_in_options = || DAEMON.has_flag(host, LIVE_RESTORE_OPTION);
        match (is_loaded, is_in_file || is_in_options()) {
            (true, true) => Self::Enabled,
            (false, false) => Self::Disabled,
            (false, true) if is_in_file => Self::NotLoaded(config_path),
            (false, true) => Self::OnlyInOptions,
            (true, false) => Self::Removed(config_path),
        }
    }
}

fn is_set_in_file(host: &HostRoot, config_path: &Path) -> bool {
    let text = host.read(config_path).ok().flatten();
    let (_, text) = split_byte_order_mark(text.as_deref().unwrap_or_default());
    let daemon_json: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    daemon_json["live-restore"] == true
}

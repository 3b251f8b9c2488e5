//! Finds out whether the containers of Docker continue to run while Docker is restarted. The
//! setting `live-restore` decides that (dockerd(8)).

use std::path::{Path, PathBuf};

use super::api::Runtimes;
use super::{DAEMON, split_byte_order_mark};
use crate::host::HostRoot;

const LIVE_RESTORE_OPTION: &str = "--live-restore";

/// The state of Docker's setting `live-restore`. Containers continue to run during a restart only
/// if the running daemon and the next daemon both have the setting. A daemon without it ends the
/// containers that it finds at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveRestore {
    /// Containers continue to run while Docker is restarted.
    Enabled,
    /// Neither the running daemon has the setting, nor would the daemon have it after a restart.
    Disabled,
    /// The configuration file at this path has the setting, but the running daemon has not read it
    /// yet.
    NotLoaded(PathBuf),
    /// The command line of the daemon has the setting now, but the running daemon was started
    /// before that. The configuration file does not have the setting.
    OptionNotLoaded,
    /// The running daemon has the setting, but neither the configuration file at this path nor the
    /// command line sets it for the next daemon. Docker keeps the setting at a reload after the key
    /// was removed.
    Removed(PathBuf),
    /// No daemon answers, so its setting is not known.
    Unknown,
}

impl LiveRestore {
    /// Asks the running daemon for its setting, and reads the configuration file and the command
    /// line of the next daemon.
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
            (false, true) => Self::OptionNotLoaded,
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

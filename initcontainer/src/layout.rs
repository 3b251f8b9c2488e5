//! The paths of an installation with the default directories. All paths are absolute paths of the
//! host. [`Host`](crate::host::Host) has those that depend on the chosen directories.
//!
//! ```text
//! /opt/boathook/0.1.0/bin/{boathook,boathook-hook,boathook-runtime,boathook-init}
//! /opt/boathook/0.1.0/classes.d/*.toml
//! /opt/boathook/0.1.0/share/...            manual pages and completions
//! /opt/boathook/current -> 0.1.0
//! /opt/boathook/state/install.json         the manifest of the installation
//! /opt/boathook/state/containerd.json      the record of an engine's files (one per engine)
//! /opt/boathook/state/config.toml          a copy of the given configuration
//! /etc/boathook/config.toml                the configuration in use
//! /etc/boathook/classes.d/                 the administrator's class files
//! /var/lib/boathook.toml                   the directories, where they are not the usual ones
//! /usr/local/bin/boathook...               links to the programs
//! /usr/local/share/{man,bash-completion,zsh,fish}/...  links to manual pages and completions
//! ```

use std::ffi::{OsStr, OsString};

use device_class::config::InstalledDirectories;

/// The directory below which links to the files of a version are made.
pub(crate) const LOCAL: &str = "/usr/local";
/// The directory of the links to programs.
pub const LINKS: &str = "/usr/local/bin";
/// The directory of the links to manual pages and completions.
pub const SHARED_LINKS: &str = "/usr/local/share";
/// The directory of programs that a distribution's package installs.
pub const PACKAGED: &str = "/usr/bin";

/// The directory of the systemd units that an installation writes, and of the links that enable
/// them.
pub const UNITS: &str = "/etc/systemd/system";

/// The directory of the hook's log, which is kept until the next boot.
pub const RUN: &str = "/run/boathook";

/// The directory of `boathook-dra`, with claim records, sockets and locks.
pub const DRIVER: &str = "/var/lib/kubelet/plugins/boathook.dev";

/// The default path of the plugin's file with node labels.
pub const NODE_LABELS: &str = "/etc/kubernetes/node-feature-discovery/features.d/boathook";

/// Returns the configuration file for a host that has none.
pub fn default_config(directories: &InstalledDirectories) -> String {
    let [installed, packaged, own] = directories.classes().map(|path| format!("{path:?},"));
    format!(
        "\
# The configuration of boathook. boathook-init writes this file once and does
# not change it again.

# Directories of class files. A file overrides the file of the same name in an
# earlier directory; an empty file disables it.
classes = [
  {installed:<38} # installed by boathook-init
  {packaged:<38} # installed by a package
  {own:<38} # your own
]
"
    )
}

/// Returns the temporary name of a file or directory while it is incomplete.
pub fn unfinished_name(name: &OsStr) -> OsString {
    temporary_name(name, "new")
}

/// Returns the temporary name of a directory while it is being removed.
pub fn discarded_name(name: &OsStr) -> OsString {
    temporary_name(name, "old")
}

fn temporary_name(name: &OsStr, mark: &str) -> OsString {
    format!(".boathook-{mark}-{}", name.to_string_lossy()).into()
}

/// The name of the directory that contains the installer's lock file. It is in the program
/// directory, or in its nearest existing ancestor.
pub const LOCK: &str = ".boathook-lock";

/// Returns whether an entry of the program directory is a temporary name that an interrupted run
/// left.
pub fn is_leftover(name: &str) -> bool {
    name.starts_with(".boathook-") && name != LOCK
}

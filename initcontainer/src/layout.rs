//! The paths of an installation. All paths are absolute paths of the host.
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
//! /usr/local/bin/boathook...               links to the programs
//! /usr/local/share/{man,bash-completion,zsh,fish}/...  links to manual pages and completions
//! ```

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use runtime_config::Engine;

/// The directory that holds everything but the administrator's configuration.
pub const ROOT: &str = "/opt/boathook";
/// The link to the version in use.
pub const CURRENT: &str = "/opt/boathook/current";
/// The directory with the records that a removal needs.
pub const STATE: &str = "/opt/boathook/state";
pub const MANIFEST: &str = "/opt/boathook/state/install.json";
/// The copy of the configuration that was given to the installation. `boathook check` compares
/// it with the configuration in use.
pub const GIVEN_CONFIG: &str = device_class::config::GIVEN_PATH;
pub const OWN_CONFIG: &str = "/etc/boathook";
pub const CONFIG: &str = "/etc/boathook/config.toml";
pub const OWN_CLASSES: &str = "/etc/boathook/classes.d";
/// The directory below which links to a version's files are made, for use in a shell.
pub(crate) const LOCAL: &str = "/usr/local";
/// The links to the programs.
pub const LINKS: &str = "/usr/local/bin";
/// The links to manual pages and completions.
pub const SHARED_LINKS: &str = "/usr/local/share";
/// The directory in which a distribution's package installs programs.
pub const PACKAGED: &str = "/usr/bin";

/// The directory of the units that an installation places, and of the links that enable units.
pub const UNITS: &str = "/etc/systemd/system";

/// The directory of the hook's log, which is kept until the next boot.
pub const RUN: &str = "/run/boathook";

/// The directory of `boathook-dra` with claim records, sockets and locks.
pub const DRIVER: &str = "/var/lib/kubelet/plugins/boathook.dev";

/// The plugin's file with labels of the node, at its usual place.
pub const NODE_LABELS: &str = "/etc/kubernetes/node-feature-discovery/features.d/boathook";

/// The hook, as engines call it.
pub const HOOK: &str = runtime_config::INSTALLED_HOOK;
/// The program with the commands for administrators.
pub const COMMANDS: &str = "/opt/boathook/current/bin/boathook";
/// The wrapper runtime, as engines call it.
pub const RUNTIME: &str = "/opt/boathook/current/bin/boathook-runtime";

/// The configuration that is written if the host has none.
pub const DEFAULT_CONFIG: &str = "\
# The configuration of boathook. boathook-init writes this file once and does
# not change it again.

# Directories of class files. A file overrides the file of the same name in an
# earlier directory; an empty file disables it.
classes = [
  \"/opt/boathook/current/classes.d\",     # installed by boathook-init
  \"/usr/share/boathook/classes.d\",       # installed by a package
  \"/etc/boathook/classes.d\",             # your own
]
";

/// Returns the target, a file of the current version, of a link in [`LINKS`] or
/// [`SHARED_LINKS`].
pub(crate) fn link_target(link: &Path) -> PathBuf {
    Path::new(CURRENT).join(link.strip_prefix(LOCAL).unwrap_or(link))
}

pub fn version_dir(version: &str) -> PathBuf {
    Path::new(ROOT).join(version)
}

/// Returns the directory in which a version is assembled before it is renamed to its final name.
pub fn staging_dir(version: &str) -> PathBuf {
    Path::new(ROOT).join(unfinished_name(OsStr::new(version)))
}

/// Returns the temporary name, in the same directory, of a file or directory that is incomplete.
pub fn unfinished_name(name: &OsStr) -> OsString {
    temporary_name(name, "new")
}

/// Returns the temporary name, in the same directory, of a directory that is being removed.
pub fn discarded_name(name: &OsStr) -> OsString {
    temporary_name(name, "old")
}

fn temporary_name(name: &OsStr, mark: &str) -> OsString {
    format!(".boathook-{mark}-{}", name.to_string_lossy()).into()
}

/// The name of the directory with the installer's lock. It is in [`ROOT`], or in the nearest
/// existing directory above.
pub const LOCK: &str = ".boathook-lock";

/// Returns whether a name in [`ROOT`] is a temporary name of an interrupted run.
pub fn is_leftover(name: &str) -> bool {
    name.starts_with(".boathook-") && name != LOCK
}

pub fn record_path(engine: Engine) -> PathBuf {
    Path::new(STATE).join(format!("{engine}.json"))
}

//! Where things are on a host. All paths are the host's own.
//!
//! ```text
//! /opt/boathook/0.1.0/bin/{boathook,boathook-hook,boathook-runtime,boathook-init}
//! /opt/boathook/0.1.0/classes.d/*.toml
//! /opt/boathook/0.1.0/share/...            manual pages and completions
//! /opt/boathook/current -> 0.1.0
//! /opt/boathook/state/install.json         what was there before
//! /opt/boathook/state/containerd.json      and what the engine's files held
//! /opt/boathook/state/config.toml          the configuration of the cluster
//! /etc/boathook/config.toml                the administrator's
//! /etc/boathook/classes.d/                 the administrator's class files
//! /usr/local/bin/boathook...               links to the programs
//! /usr/local/share/{man,bash-completion,zsh,fish}/...  and to what an archive has of them
//! ```

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use runtime_config::Engine;

/// The directory that holds everything but the administrator's configuration.
pub const ROOT: &str = "/opt/boathook";
/// The link to the version in use.
pub const CURRENT: &str = "/opt/boathook/current";
/// What uninstalling needs to know.
pub const STATE: &str = "/opt/boathook/state";
pub const MANIFEST: &str = "/opt/boathook/state/install.json";
/// The configuration that an installation was given, with which `boathook check`
/// compares the one in use.
pub const GIVEN_CONFIG: &str = device_class::config::GIVEN_PATH;
pub const OWN_CONFIG: &str = "/etc/boathook";
pub const CONFIG: &str = "/etc/boathook/config.toml";
pub const OWN_CLASSES: &str = "/etc/boathook/classes.d";
/// Where a version's files are linked to, for use in a shell.
pub(crate) const LOCAL: &str = "/usr/local";
/// The links to the programs.
pub const LINKS: &str = "/usr/local/bin";
/// The links to manual pages and completions.
pub const SHARED_LINKS: &str = "/usr/local/share";
/// Where a distribution's package puts programs.
pub const PACKAGED: &str = "/usr/bin";

/// What the hook keeps until the next boot: its log.
pub const RUN: &str = "/run/boathook";

/// What `boathook-dra` keeps: the records of claims, its sockets and locks.
pub const DRIVER: &str = "/var/lib/kubelet/plugins/boathook.dev";

/// The hook, as engines call it.
pub const HOOK: &str = runtime_config::INSTALLED_HOOK;
/// The program with the commands for administrators.
pub const COMMANDS: &str = "/opt/boathook/current/bin/boathook";
/// The wrapper runtime, as engines call it.
pub const RUNTIME: &str = "/opt/boathook/current/bin/boathook-runtime";

/// The configuration that is written where there is none.
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

/// The file of a version to which one of [`LINKS`] or [`SHARED_LINKS`] leads.
pub(crate) fn target(link: &Path) -> PathBuf {
    Path::new(CURRENT).join(link.strip_prefix(LOCAL).unwrap_or(link))
}

pub fn version_dir(version: &str) -> PathBuf {
    Path::new(ROOT).join(version)
}

/// Where a version is put together before it gets its name.
pub fn staging_dir(version: &str) -> PathBuf {
    Path::new(ROOT).join(unfinished(OsStr::new(version)))
}

/// The name, in the same directory, of what is not complete yet.
pub fn unfinished(name: &OsStr) -> OsString {
    marked(name, "new")
}

/// The name, in the same directory, of what is being removed.
pub fn discarded(name: &OsStr) -> OsString {
    marked(name, "old")
}

fn marked(name: &OsStr, mark: &str) -> OsString {
    format!(".boathook-{mark}-{}", name.to_string_lossy()).into()
}

/// The name of the directory with the installer's lock, in [`ROOT`] or where that is to
/// be made.
pub const LOCK: &str = ".boathook-lock";

/// Whether a name in [`ROOT`] is unfinished or discarded.
pub fn is_leftover(name: &str) -> bool {
    name.starts_with(".boathook-") && name != LOCK
}

pub fn record(engine: Engine) -> PathBuf {
    Path::new(STATE).join(format!("{engine}.json"))
}

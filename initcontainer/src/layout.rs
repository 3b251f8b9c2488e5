//! Where things lie on a host. All paths are the host's own.
//!
//! ```text
//! /opt/boathook/0.1.0/bin/{boathook,boathook-runtime,boathook-init}
//! /opt/boathook/0.1.0/classes.d/*.toml
//! /opt/boathook/current -> 0.1.0
//! /opt/boathook/state/install.json         what was there before
//! /opt/boathook/state/containerd.json      and what the engine's files held
//! /etc/boathook/config.toml                the administrator's
//! ```

use std::path::{Path, PathBuf};

use runtime_config::Engine;

/// The directory that holds everything but the administrator's configuration.
pub const ROOT: &str = "/opt/boathook";
/// The link to the version in use.
pub const CURRENT: &str = "/opt/boathook/current";
/// What uninstalling needs to know.
pub const STATE: &str = "/opt/boathook/state";
/// The manifest of the installation.
pub const MANIFEST: &str = "/opt/boathook/state/install.json";
/// The administrator's configuration.
pub const CONFIG: &str = "/etc/boathook/config.toml";

/// The hook, as engines call it.
pub const HOOK: &str = "/opt/boathook/current/bin/boathook";
/// The wrapper runtime, as engines call it.
pub const RUNTIME: &str = "/opt/boathook/current/bin/boathook-runtime";

/// The configuration that is written where there is none. The hook's default
/// directory of classes is a package's; an image brings its classes along.
pub const DEFAULT_CONFIG: &str = "\
# The configuration of boathook. Written once by boathook-init; yours from now on.

# Directories of class files. A file in a later one masks its namesake in an
# earlier one, so your own go into /etc/boathook/classes.d.
classes = [\"/opt/boathook/current/classes.d\", \"/etc/boathook/classes.d\"]
";

/// The directory of a version.
pub fn version_dir(version: &str) -> PathBuf {
    Path::new(ROOT).join(version)
}

/// Where a version is put together before it gets its name.
pub fn staging_dir(version: &str) -> PathBuf {
    unfinished(&version_dir(version))
}

/// The name beside `path` of what is not complete yet.
pub fn unfinished(path: &Path) -> PathBuf {
    beside(path, "new")
}

/// The name beside `path` of what is being removed.
pub fn discarded(path: &Path) -> PathBuf {
    beside(path, "old")
}

fn beside(path: &Path, mark: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".boathook-{mark}-{name}"))
}

/// Whether a name in [`ROOT`] is unfinished or discarded.
pub fn is_leftover(name: &str) -> bool {
    name.starts_with(".boathook-")
}

/// The record of an engine's files.
pub fn record(engine: Engine) -> PathBuf {
    Path::new(STATE).join(format!("{engine}.json"))
}

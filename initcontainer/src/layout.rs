//! The paths of an installation with the default directories. All paths are absolute paths of the
//! host. [`Host`](crate::host::Host) has the paths that depend on the chosen directories.
//!
//! ```text
//! /opt/boathook/0.1.0/bin/{boathook,boathook-hook,boathook-runtime,boathook-init}
//! /opt/boathook/0.1.0/classes.d/*.toml
//! /opt/boathook/0.1.0/classes.d/.classes.json  the class index, which is written last
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

/// The directory below which an installation makes links to the files of a version.
pub(crate) const LOCAL_DIR: &str = "/usr/local";
/// The directory of the links to programs, so that a shell finds them in its PATH.
pub const PROGRAM_LINKS_DIR: &str = "/usr/local/bin";
/// The directory below which the links to manual pages and completions are, where man(1) and shells
/// search for them.
pub const SHARED_LINKS_DIR: &str = "/usr/local/share";
/// The directory to which the package of a distribution installs programs.
pub const PACKAGED_PROGRAMS_DIR: &str = "/usr/bin";

/// The directory of the systemd units that an installation writes, and of the links that enable
/// them.
pub const SYSTEMD_UNITS_DIR: &str = "/etc/systemd/system";

/// The directory that contains the hook's log. The log is lost at a boot, because /run is a tmpfs.
pub const RUN_DIR: &str = "/run/boathook";

/// The directory in which `boathook-dra` has its claim records, sockets and locks.
pub const DRA_DRIVER_DIR: &str = "/var/lib/kubelet/plugins/boathook.dev";

/// The default path of the file to which the plugin writes node labels. Node Feature Discovery
/// reads the files in this directory.
pub const NODE_LABELS_PATH: &str = "/etc/kubernetes/node-feature-discovery/features.d/boathook";

/// Returns the text of the configuration file for a host that has none. It lists the directories of
/// class files.
pub fn format_default_config(directories: &InstalledDirectories) -> String {
    let [installed_dir, packaged_dir, own_dir] =
        directories.class_dirs().map(|path| format!("{path:?},"));
    format!(
        "\
# The configuration of boathook. boathook-init writes this file once and does
# not change it again.

# Directories of class files. A file overrides the file of the same name in an
# earlier directory; an empty file disables it.
classes = [
  {installed_dir:<38} # installed by boathook-init
  {packaged_dir:<38} # installed by a package
  {own_dir:<38} # your own
]
"
    )
}

/// Returns the temporary name that the file or directory `name` has until its content is complete,
/// such as `.boathook-new-0.1.0`.
pub fn temp_name_for_creation(name: &OsStr) -> OsString {
    format_temp_name(name, "new")
}

/// Returns the temporary name that the directory `name` gets before its content is removed, such as
/// `.boathook-old-0.1.0`.
pub fn temp_name_for_removal(name: &OsStr) -> OsString {
    format_temp_name(name, "old")
}

fn format_temp_name(name: &OsStr, state: &str) -> OsString {
    format!(".boathook-{state}-{}", name.to_string_lossy()).into()
}

/// The name of the directory that contains the installer's lock file. It is in the program
/// directory, or in its nearest existing ancestor.
pub const LOCK_DIR_NAME: &str = ".boathook-lock";

/// Returns whether `name` is a temporary name. A file with such a name in the program directory was
/// left by an interrupted run.
pub fn is_temporary_name(name: &str) -> bool {
    name.starts_with(".boathook-") && name != LOCK_DIR_NAME
}

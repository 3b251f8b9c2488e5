//! What can go wrong, and what the operator should do about it.

use std::path::PathBuf;

/// A failure while installing, reporting or uninstalling.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the host, or an engine's configuration.
    #[error(transparent)]
    Host(#[from] runtime_config::Error),
    /// A file to be installed is missing or unfit.
    #[error("{path} cannot be installed: {problem}; use the image or archive of this release")]
    Payload { path: PathBuf, problem: String },
    #[error(
        "{source_dir} has no programs, neither in it nor in bin/; \
         use --source with the directory of a release or of a build (target/release)"
    )]
    NoPrograms { source_dir: PathBuf },
    /// There are no class files, without which no container gets a device.
    #[error(
        "no class files in {dir}: {problem}; name their directory with --classes, \
         or install without any with --classes=none"
    )]
    NoClasses { dir: PathBuf, problem: String },
    /// Fewer class files than the installed release has.
    #[error(
        "{} class files are installed that this release lacks, and their devices would be \
         missing in new containers: {}; use --classes to remove them", names.len(), names.join(", ")
    )]
    FewerClasses {
        /// The class files that would go.
        names: Vec<String>,
    },
    /// A class file or the configuration is wrong; the hook would refuse to work.
    #[error(transparent)]
    Class(#[from] device_class::strict_toml::FileError),
    /// A program for another kind of machine.
    #[error(
        "{path} is a program for {found}, but this host is {host}; \
         use the image or archive for {host}"
    )]
    Architecture {
        path: PathBuf,
        /// The machine that it is for.
        found: String,
        /// The machine that this is.
        host: &'static str,
    },
    /// Another installer holds the lock.
    #[error("another boathook-init is running on {path}; try again when it has ended")]
    Busy {
        /// The directory of the lock.
        path: PathBuf,
    },
    /// The lock could be held by whoever likes.
    #[error("{path} can be opened by others than this user, who could hold the lock; remove it")]
    OpenLock { path: PathBuf },
    /// Containers still need the wrapper runtime.
    #[error(
        "these containers were started by boathook-runtime and cannot be stopped without it: \
         {ids}; stop them first, or use --force"
    )]
    InUse { ids: String },
    /// Pods still have devices by claims.
    #[error(
        "the claims {uids} are prepared on this node (below {}): delete their pods while \
         boathook-dra runs, or use --force",
        crate::layout::DRIVER
    )]
    Claims { uids: String },
    /// The engine's configuration would go on naming what is removed.
    #[error(
        "the directory of {path}, by which {engine} calls boathook, is not there: mount it at the \
         same place as for the installation, or use --force if {engine} was removed"
    )]
    OutOfSight {
        engine: runtime_config::Engine,
        path: PathBuf,
    },
    /// A running engine would start no container any more.
    #[error(
        "{engine} is running with boathook-runtime as its default runtime and would keep it, so \
         that no container starts; use --restart, which restores its own runtime"
    )]
    StillDefault { engine: runtime_config::Engine },
    /// The user may not change the host.
    #[error("must be run as root, such as with sudo")]
    NotRoot,
    /// What an earlier installation left cannot be read.
    #[error("{path} is not valid: {message}; restore it from a backup, or remove it")]
    Manifest { path: PathBuf, message: String },
    /// A step failed, and so did undoing the steps before it.
    #[error("{first}; and undoing the earlier steps failed too: {second}")]
    Rollback {
        first: Box<Error>,
        second: Box<Error>,
    },
}

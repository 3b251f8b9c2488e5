//! The errors that can occur when a running container is changed.

use std::io;
use std::path::PathBuf;

use hook::apply::ApplyError;
use hook::attachment::RevokeError;
use hook::cgroup::CgroupError;
use hook::mount;
use hook::oci::BundleError;
use hook::planner::PlannerError;
use hook::sys::deadline;
use nix::errno::Errno;

/// The reason why a running container could not be changed, or was changed only in part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerChangeError {
    #[error("the container has ended; nothing of it is changed")]
    ContainerEnded,
    #[error(
        "its first process has ended while others of it go on: devices can only be taken away from \
         it, with `boathook detach`"
    )]
    FirstProcessEnded,
    #[error(
        "devices are attached to another container with this id, whose bundle is {}: detach them \
         first",
        bundle.display()
    )]
    IdInUse { bundle: PathBuf },
    #[error(
        "this needs root: run it with sudo, or with `podman unshare` for a container of your own \
         rootless podman"
    )]
    NotRoot,
    #[error(
        "its first process is in a user namespace that config.json does not have, and whoever made \
         that decides what is mounted there: for a container of rootless podman its user runs this \
         with `podman unshare`"
    )]
    ForeignUserNamespace,
    #[error("the record of what is attached cannot be used")]
    LockedRecord(#[from] io::Error),
    #[error(
        "its device rules are revoked, but not all that was attached is removed; run this again \
         later"
    )]
    FilesRemain(#[source] io::Error),
    #[error(
        "devices were detached from the container meanwhile, and nothing else is changed: run this \
         again"
    )]
    ConcurrentDetach,
    #[error("{}", .0)]
    NotAttached(String),
    #[error("no device of this host is meant, and nothing is attached{}", .0)]
    NoDevice(String),
    #[error(
        "{0} has a network interface, which a container gets only when it is started: set the \
         variable of its class, and create the container again"
    )]
    NetInterface(String),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Planner(Box<PlannerError>),
    #[error(transparent)]
    Revoke(#[from] RevokeError),
    #[error(transparent)]
    Apply(Box<ApplyError>),
    #[error("in the container")]
    Container(#[from] hook::container::Error),
    #[error(transparent)]
    Mount(#[from] mount::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("cannot look at the container: {0}")]
    Inspection(String),
    /// An error of a child process. The child process returned it as text.
    #[error("{0}")]
    ChildProcess(String),
    #[error(
        "the container did not let it be changed within {} seconds",
        deadline::DEADLINE_SECONDS
    )]
    Timeout,
    #[error("cannot send messages in a container's network namespace")]
    NetworkNamespace(#[source] Errno),
    #[error("cannot watch containers' cgroups")]
    CgroupWatch(#[source] Errno),
    #[error("cannot start a process")]
    Fork(#[source] Errno),
}

impl From<PlannerError> for ContainerChangeError {
    fn from(error: PlannerError) -> Self {
        ContainerChangeError::Planner(Box::new(error))
    }
}

impl From<ApplyError> for ContainerChangeError {
    fn from(error: ApplyError) -> Self {
        ContainerChangeError::Apply(Box::new(error))
    }
}

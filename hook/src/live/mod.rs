//! Devices of containers that run: `attach`, `detach` and `refresh`, which a user starts, and
//! `follow`, which keeps containers up to date while devices come and go.
//!
//! The modules build on each other in this order:
//!
//! - [`attachment_record`]: what was changed in one container, with its rules
//!   ([`recorded_rule`]) and files ([`created_file`]), and what it waits for
//!   ([`awaited_device`]); [`record_files`] reads and writes it, and [`record_form`] has the texts
//!   in it.
//! - [`container`]: opens, locks and enters a container. This process stays in the host's
//!   namespaces. A child process enters the container, which may do anything meanwhile, and is
//!   ended if the container keeps it waiting.
//! - [`revoke`] takes device rules away; [`change`] changes a container and its record, or
//!   nothing.
//! - The commands: [`attach`], [`detach`], [`refresh`], [`follow`], and [`at_start`], which the
//!   hook calls.

mod at_start;
mod attach;
mod attached_device;
mod attachment_record;
mod awaited_device;
mod change;
mod container;
mod created_file;
mod detach;
mod follow;
mod hidden_program;
mod lock;
mod open_by;
mod record_files;
mod record_form;
mod recorded_rule;
mod refresh;
mod revoke;

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::apply::ApplyError;
use crate::cgroup::CgroupError;
use crate::mount;
use crate::oci::BundleError;
use crate::planner::PlannerError;
use crate::sys::deadline;

pub(crate) use at_start::write_at_start;
pub(crate) use attach::{Attaching, attach};
pub(crate) use attached_device::AttachedDevice;
pub(crate) use attachment_record::AttachmentRecord;
pub(crate) use container::ContainerLocation;
use container::LockedContainer;
pub(crate) use detach::{Detached, detach};
pub(crate) use follow::{Follower, catch_up};
pub(crate) use record_files::{
    add_attached, find as find_record, prune as prune_records, read_all as read_records,
    read_all_and_report as read_and_report_records,
};
pub(crate) use refresh::{Refreshing, refresh};

/// The reason for which a running container was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    #[error("the container has ended; nothing of it is changed")]
    Ended,
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
    SameId { bundle: PathBuf },
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
    OwnUsers,
    #[error("the record of what is attached cannot be used")]
    LockedRecord(#[from] io::Error),
    #[error(
        "its device rules are revoked, but not all that was attached is removed; run this again \
         later"
    )]
    OnlyRevoked(#[source] io::Error),
    #[error(
        "devices were detached from the container meanwhile, and nothing else is changed: run this \
         again"
    )]
    DetachedMeanwhile,
    #[error("{}", .0)]
    NotAttached(String),
    #[error("no device of this host is meant, and nothing is attached{}", .0)]
    NoDevice(String),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Planner(Box<PlannerError>),
    #[error(
        "the kernel hides the container's device program, which can only be made again as a whole, \
         and what the hook gave the container at its start is not recorded; its device rules are \
         left as they are: start the container again, best with net.core.bpf_jit_harden below 2"
    )]
    Hidden,
    #[error(transparent)]
    Apply(Box<ApplyError>),
    #[error("in the container")]
    Container(#[from] crate::container::Error),
    #[error(transparent)]
    Mount(#[from] mount::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("cannot look at the container: {0}")]
    Look(String),
    /// An error in a child process, which reports it as text.
    #[error("{0}")]
    InContainer(String),
    #[error(
        "the container did not let it be changed within {} seconds",
        deadline::SECONDS
    )]
    TooSlow,
    #[error("cannot send messages in a container's network namespace")]
    Network(#[source] Errno),
    #[error("cannot watch containers' cgroups")]
    Watch(#[source] Errno),
    #[error("cannot start a process")]
    Fork(#[source] Errno),
}

impl From<PlannerError> for LiveError {
    fn from(error: PlannerError) -> Self {
        LiveError::Planner(Box::new(error))
    }
}

impl From<ApplyError> for LiveError {
    fn from(error: ApplyError) -> Self {
        LiveError::Apply(Box::new(error))
    }
}

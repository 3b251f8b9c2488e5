//! Devices of containers that run: attached and detached by a user. The hook's own plan and
//! steps are used, on a container that may do anything meanwhile.
//!
//! This process stays in the host's namespaces: rules, records and the way back are its. A
//! child enters the container's mount namespace, and is ended if the container keeps it
//! waiting.

mod at_start;
mod attach;
mod detach;
mod follow;
mod hidden;
mod lock;
mod made;
mod open_by;
mod record;
mod records;
mod refresh;
mod revoke;
mod rule;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use device_class::config::Config;
use nix::errno::Errno;
use oci_spec::runtime::LinuxDeviceCgroup;

use crate::apply::ApplyError;
use crate::cgroup::{CgroupError, DeviceCgroup};
use crate::container::{self, ContainerNamespace, ContainerRoot, ProcessState};
use crate::mount::{self, KernelCalls};
use crate::oci::{self, Bundle, BundleError};
use crate::planner::PlannerError;
use crate::sys;
use crate::sys::deadline::{self, Deadline};

pub(crate) use at_start::write_at_start;
pub(crate) use attach::{Attaching, attach};
pub(crate) use detach::{Detached, detach};
pub(crate) use follow::{Follower, catch_up};
pub(crate) use record::{Device, Record};
use records::Records;
pub(crate) use records::{
    add_attached, all as readable_records, all_reported as all_records, find as find_record,
    prune as prune_records,
};
pub(crate) use refresh::{Refreshing, refresh};

/// Why a container that runs was not changed.
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
    Records(#[from] io::Error),
    #[error(
        "its device rules are revoked, but not all that was attached is removed; run this again \
         later"
    )]
    OnlyRevoked(#[source] io::Error),
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
    Container(#[from] container::Error),
    #[error(transparent)]
    Mount(#[from] mount::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("cannot look at the container: {0}")]
    Look(String),
    /// As the child reports it.
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

/// Where a container that runs was found.
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) pid: i32,
    /// When the runtime started it, if it says so.
    pub(crate) started: Option<u64>,
    pub(crate) bundle: PathBuf,
}

/// A container that runs, through the mount namespace of its first process.
struct OpenContainer {
    bundle: Bundle,
    namespace: ContainerNamespace,
    calls: KernelCalls,
}

impl OpenContainer {
    fn open(found: &Found) -> Result<Self, LiveError> {
        let bundle = Bundle::read(&found.bundle)?;
        let calls = KernelCalls::probe();
        let resolver = calls.resolver();
        let namespace =
            ContainerNamespace::of_running(found.pid, found.started, &bundle.rootfs, resolver)?;
        if namespace.has_own_users() && !bundle.has_user_namespace {
            return Err(LiveError::OwnUsers);
        }
        Ok(OpenContainer {
            bundle,
            namespace,
            calls,
        })
    }

    /// Enters the container, for good.
    fn enter(&self) -> Result<ContainerRoot, LiveError> {
        let resolver = self.calls.resolver();
        Ok(self.namespace.enter(&self.bundle.tmpfs, resolver)?)
    }
}

/// A container that runs, with what is known of it.
struct Running {
    container: OpenContainer,
    records: Records,
    record: Record,
}

impl Running {
    /// Opens a container, and locks the records.
    fn open(found: &Found, config: &Config) -> Result<Self, LiveError> {
        Self::open_within(lock::PATIENCE, found, config)
    }

    fn open_within(patience: Duration, found: &Found, config: &Config) -> Result<Self, LiveError> {
        require_root()?;
        let container = OpenContainer::open(found).map_err(|error| {
            let state = |started| container::process_state(found.pid, started);
            match found.started.map(state) {
                Some(ProcessState::Ended) => LiveError::Ended,
                _ => error,
            }
        })?;
        let started = container.namespace.started()?;
        let records = Records::open(&config.host_root, &found.id, patience)?;
        let mut new = Record {
            id: found.id.clone(),
            pid: found.pid,
            started,
            is_init: container::is_init(found.pid),
            bundle: found.bundle.clone(),
            spec: Some(spec(&container.bundle)),
            ..Record::default()
        };
        let cgroup = DeviceCgroup::of_member(&container.namespace.cgroups()?)?;
        new.set_cgroup(cgroup.as_ref());
        let record = match records.read()? {
            Some(known) if known.is_of_same_start(&new) => known.with_missing(new),
            Some(known) if known.has_content() && !known.has_ended() => {
                return Err(match known.bundle == found.bundle {
                    true => LiveError::FirstProcessEnded,
                    false => LiveError::SameId {
                        bundle: known.bundle,
                    },
                });
            }
            _ => new,
        };
        Ok(Running {
            container,
            records,
            record,
        })
    }

    /// The container of a record.
    fn of(record: &Record, patience: Duration, config: &Config) -> Result<Self, LiveError> {
        Self::open_within(patience, &record.found(), config)
    }
}

impl Record {
    /// Where its container was found.
    fn found(&self) -> Found {
        Found {
            id: self.id.clone(),
            pid: self.pid,
            started: Some(self.started),
            bundle: self.bundle.clone(),
        }
    }
}

fn require_root() -> Result<(), LiveError> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(LiveError::NotRoot),
    }
}

/// The device rules of a specification, for a record.
fn spec(bundle: &Bundle) -> Vec<LinuxDeviceCgroup> {
    let rules = bundle.spec_devices.rules.iter();
    rules.map(|rule| oci::devices::to_oci_rule(*rule)).collect()
}

/// Runs `work` in a child, which may enter a container, and returns its notes.
fn in_child(
    work: impl FnOnce(&mut Vec<String>) -> Result<(), LiveError>,
) -> Result<Vec<String>, LiveError> {
    let mut work = Some(work);
    run_in_child(&mut |notes| work.take().map_or(Ok(()), |work| work(notes)))
}

/// Once for all kinds of work: the program is smaller.
fn run_in_child(
    work: &mut dyn FnMut(&mut Vec<String>) -> Result<(), LiveError>,
) -> Result<Vec<String>, LiveError> {
    let answer = sys::process::in_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        let mut notes = Vec::new();
        let done = work(&mut notes).map_err(|error| crate::log::chain(&error));
        serde_json::to_string(&(done, notes)).unwrap_or_default()
    });
    let answer = answer.map_err(LiveError::Fork)?.ok_or(LiveError::TooSlow)?;
    let answer: (Result<(), String>, Vec<String>) =
        serde_json::from_str(&answer).map_err(|error| LiveError::InContainer(error.to_string()))?;
    match answer {
        (Ok(()), notes) => Ok(notes),
        (Err(error), _) => Err(LiveError::InContainer(error)),
    }
}

/// Does `work`, and once more if it fails: what is taken back must not stay because a single call
/// failed.
fn try_twice<T>(mut work: impl FnMut() -> Result<T, LiveError>) -> Result<T, LiveError> {
    work().or_else(|error| work().map_err(|_| error))
}

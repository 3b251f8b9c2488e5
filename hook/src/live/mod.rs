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
mod refresh;
mod rule;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use device_class::config::Config;
use nix::errno::Errno;

use crate::apply::ApplyError;
use crate::cgroup::{CgroupError, DeviceCgroup};
use crate::container::{self, ContainerNamespace, ContainerRoot};
use crate::mount::{self, KernelCalls};
use crate::oci::{Bundle, BundleError};
use crate::planner::PlannerError;
use crate::sys;
use crate::sys::deadline::{self, Deadline};

pub(crate) use at_start::write_at_start;
pub(crate) use attach::{Attaching, attach};
pub(crate) use detach::{Detached, detach};
pub(crate) use follow::{Follower, catch_up};
pub(crate) use made::Made;
use record::Records;
pub(crate) use record::{Device, Record, add_attached, all as all_records};
pub(crate) use refresh::{Refreshing, refresh};

/// Why a container that runs was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    #[error("the container has ended; nothing of it is changed")]
    Ended,
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
    #[error("the records of what is attached cannot be used")]
    Records(#[from] io::Error),
    #[error("{}", .0)]
    NotAttached(String),
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

/// A container that runs, with what is known of it.
struct Running {
    bundle: Bundle,
    namespace: ContainerNamespace,
    records: Records,
    record: Record,
    calls: KernelCalls,
}

impl Running {
    /// Opens a container, and locks the records.
    fn open(found: &Found, config: &Config) -> Result<Self, LiveError> {
        Self::open_within(lock::PATIENCE, found, config)
    }

    fn open_within(patience: Duration, found: &Found, config: &Config) -> Result<Self, LiveError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(LiveError::NotRoot);
        }
        let bundle = Bundle::read(&found.bundle)?;
        let calls = KernelCalls::probe();
        let resolver = calls.resolver();
        let namespace =
            ContainerNamespace::of_running(found.pid, found.started, &bundle.rootfs, resolver);
        // A process that ends loses its namespaces before it is listed as ended.
        let namespaces = format!("/proc/{}/ns/mnt", found.pid);
        let namespace = namespace.map_err(|error| match std::fs::metadata(namespaces) {
            Err(_) => LiveError::Ended,
            Ok(_) => error.into(),
        })?;
        if namespace.has_own_users() && !bundle.has_user_namespace {
            return Err(LiveError::OwnUsers);
        }
        let started = namespace.started().map_err(|_| LiveError::Ended)?;
        let records = Records::open(&config.host_root, &found.id, patience)?;
        let record = records.load(Record {
            id: found.id.clone(),
            pid: found.pid,
            started,
            bundle: found.bundle.clone(),
            cgroup: cgroup_path(DeviceCgroup::of_member(&namespace.cgroups()?)),
            ..Record::default()
        });
        Ok(Running {
            bundle,
            namespace,
            records,
            record,
            calls,
        })
    }

    /// The container of a record.
    fn of(record: &Record, patience: Duration, config: &Config) -> Result<Self, LiveError> {
        let found = Found {
            id: record.id.clone(),
            pid: record.pid,
            started: Some(record.started),
            bundle: record.bundle.clone(),
        };
        Self::open_within(patience, &found, config)
    }

    /// Runs `work` in a child, which may enter the container, and returns its notes.
    fn in_child(
        &self,
        work: impl FnOnce(&mut Vec<String>) -> Result<(), LiveError>,
    ) -> Result<Vec<String>, LiveError> {
        let mut work = Some(work);
        self.run(&mut |notes| work.take().map_or(Ok(()), |work| work(notes)))
    }

    /// Once for all kinds of work: the program is smaller.
    fn run(
        &self,
        work: &mut dyn FnMut(&mut Vec<String>) -> Result<(), LiveError>,
    ) -> Result<Vec<String>, LiveError> {
        let answer = sys::process::in_child(deadline::LIMIT, || {
            let _deadline = Deadline::start(deadline::SECONDS);
            let mut notes = Vec::new();
            let done = work(&mut notes).map_err(|error| crate::log::chain(&error));
            serde_json::to_string(&(done, notes)).unwrap_or_default()
        });
        let answer = answer.map_err(LiveError::Fork)?.ok_or(LiveError::TooSlow)?;
        let answer: (Result<(), String>, Vec<String>) = serde_json::from_str(&answer)
            .map_err(|error| LiveError::InContainer(error.to_string()))?;
        match answer.0 {
            Ok(()) => Ok(answer.1),
            Err(_) if self.namespace.started().is_err() => Err(LiveError::Ended),
            Err(error) => Err(LiveError::InContainer(error)),
        }
    }

    /// Enters the container, for good.
    fn enter(&self) -> Result<ContainerRoot, LiveError> {
        let resolver = self.calls.resolver();
        Ok(self.namespace.enter(&self.bundle.tmpfs, resolver)?)
    }
}

fn cgroup_path(found: Result<Option<DeviceCgroup>, CgroupError>) -> PathBuf {
    let path = |cgroup: DeviceCgroup| cgroup.path().to_owned();
    found.ok().flatten().map(path).unwrap_or_default()
}

/// Whether the container of a record still runs.
fn runs(record: &Record) -> bool {
    container::start_time_of(record.pid) == Some(record.started)
}

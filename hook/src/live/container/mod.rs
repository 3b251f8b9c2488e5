//! Opens, locks and enters a container that runs, for the operations of [`crate::live`]. Only child
//! processes enter a container: this process stays in the host's namespaces.

mod cgroup;
pub(super) mod device_holders;
pub(super) mod hidden_program;
pub(super) mod lock;
pub(super) mod record_files;
mod remove_files;
mod revoke;

use std::path::PathBuf;
use std::time::Duration;

use device_class::config::Config;
use oci_spec::runtime::LinuxDeviceCgroup;

use crate::cgroup::DeviceCgroup;
use crate::container::{self, ContainerNamespace, ContainerRoot, ProcessState};
use crate::live::LiveError;
use crate::live::record::AttachmentRecord;
use crate::mount::KernelCalls;
use crate::oci::{self, Bundle};
use crate::sys;
use crate::sys::deadline::{self, Deadline};

pub(in crate::live) use record_files::LockedRecord;
pub(in crate::live) use remove_files::is_device_node;

/// A container that runs, as its engine or its record describes it.
pub(crate) struct ContainerLocation {
    pub(crate) id: String,
    /// The container's first process.
    pub(crate) pid: i32,
    /// The start time of the first process, if it is known ([`AttachmentRecord::start_time`]).
    pub(crate) start_time: Option<u64>,
    pub(crate) bundle: PathBuf,
}

/// A container that runs, with its bundle and the mount namespace of its first process.
pub(in crate::live) struct OpenContainer {
    pub(in crate::live) bundle: Bundle,
    pub(in crate::live) namespace: ContainerNamespace,
    pub(in crate::live) calls: KernelCalls,
}

impl OpenContainer {
    pub(in crate::live) fn open(location: &ContainerLocation) -> Result<Self, LiveError> {
        let bundle = Bundle::read(&location.bundle)?;
        let calls = KernelCalls::probe();
        let namespace = ContainerNamespace::from_running(
            location.pid,
            location.start_time,
            &bundle.rootfs,
            calls.resolver(),
        )?;
        if namespace.has_own_user_namespace() && !bundle.has_user_namespace {
            return Err(LiveError::ForeignUserNamespace);
        }
        Ok(OpenContainer {
            bundle,
            namespace,
            calls,
        })
    }

    /// Moves this process into the container's mount namespace. There is no way back, so that
    /// only a child process does this.
    pub(in crate::live) fn enter(&self) -> Result<ContainerRoot, LiveError> {
        let resolver = self.calls.resolver();
        Ok(self.namespace.enter(&self.bundle.tmpfs_paths, resolver)?)
    }
}

/// A container that runs, with its record, which this process has locked.
pub(in crate::live) struct LockedContainer {
    pub(in crate::live) container: OpenContainer,
    pub(in crate::live) record_file: LockedRecord,
    pub(in crate::live) record: AttachmentRecord,
    /// The record as it was read from its file.
    as_read: Option<AttachmentRecord>,
}

impl LockedContainer {
    /// Opens and locks a container for a command that a user started.
    pub(in crate::live) fn open(
        location: &ContainerLocation,
        config: &Config,
    ) -> Result<Self, LiveError> {
        Self::open_within(lock::COMMAND_LIMIT, location, config)
    }

    /// Opens and locks the container of a record. Waits for the lock for at most `limit`.
    pub(in crate::live) fn from_record(
        record: &AttachmentRecord,
        limit: Duration,
        config: &Config,
    ) -> Result<Self, LiveError> {
        Self::open_within(limit, &record.location(), config)
    }

    fn open_within(
        limit: Duration,
        location: &ContainerLocation,
        config: &Config,
    ) -> Result<Self, LiveError> {
        require_root()?;
        let container = OpenContainer::open(location).map_err(|error| {
            let state = |start_time| container::process_state(location.pid, start_time);
            match location.start_time.map(state) {
                Some(ProcessState::Ended) => LiveError::ContainerEnded,
                _ => error,
            }
        })?;
        let start_time = container.namespace.read_start_time()?;
        let record_file = LockedRecord::open(&config.host_root, &location.id, limit)?;
        let mut new = AttachmentRecord {
            id: location.id.clone(),
            pid: location.pid,
            start_time,
            is_init: container::is_init(location.pid),
            bundle: location.bundle.clone(),
            spec_rules: Some(list_spec_rules(&container.bundle)),
            ..AttachmentRecord::default()
        };
        let cgroup = DeviceCgroup::from_membership(&container.namespace.read_cgroups()?)?;
        new.set_cgroup(cgroup.as_ref());
        let as_read = record_file.read()?;
        let record = match as_read.clone() {
            Some(known) if known.is_from_same_start(&new) => known.with_missing_fields(new),
            Some(known) if known.has_attachments() && !known.has_ended() => {
                return Err(if known.bundle == location.bundle {
                    LiveError::FirstProcessEnded
                } else {
                    LiveError::IdInUse {
                        bundle: known.bundle,
                    }
                });
            }
            _ => new,
        };
        Ok(LockedContainer {
            container,
            record_file,
            record,
            as_read,
        })
    }

    /// Writes the record, unless another process has detached devices since this one read it: `detach`
    /// does not wait for the lock for ever.
    pub(in crate::live) fn save_if_unchanged(
        &self,
        record: &AttachmentRecord,
    ) -> Result<(), LiveError> {
        let as_read = self.as_read.as_ref();
        if self.record_file.save_if_unchanged(as_read, record)? {
            Ok(())
        } else {
            Err(LiveError::ConcurrentDetach)
        }
    }
}

impl AttachmentRecord {
    pub(in crate::live) fn location(&self) -> ContainerLocation {
        ContainerLocation {
            id: self.id.clone(),
            pid: self.pid,
            start_time: Some(self.start_time),
            bundle: self.bundle.clone(),
        }
    }
}

pub(in crate::live) fn require_root() -> Result<(), LiveError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LiveError::NotRoot);
    }
    Ok(())
}

/// Returns the device rules of the specification, as attachment records have them.
pub(in crate::live) fn list_spec_rules(bundle: &Bundle) -> Vec<LinuxDeviceCgroup> {
    let rules = bundle.spec_devices.rules.iter();
    rules.map(|rule| oci::devices::to_oci_rule(*rule)).collect()
}

/// Runs `work` in a child process, which may enter a container, and returns its warnings. The
/// child is ended if the container keeps it waiting.
pub(in crate::live) fn run_in_child(
    work: impl FnOnce(&mut Vec<String>) -> Result<(), LiveError>,
) -> Result<Vec<String>, LiveError> {
    let answer = sys::process::run_in_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        let mut warnings = Vec::new();
        let done = work(&mut warnings).map_err(|error| crate::log::chain(&error));
        serde_json::to_string(&(done, warnings)).unwrap_or_default()
    });
    let answer = answer.map_err(LiveError::Fork)?.ok_or(LiveError::Timeout)?;
    let answer: (Result<(), String>, Vec<String>) = serde_json::from_str(&answer)
        .map_err(|error| LiveError::ChildProcess(error.to_string()))?;
    match answer {
        (Ok(()), warnings) => Ok(warnings),
        (Err(error), _) => Err(LiveError::ChildProcess(error)),
    }
}

/// Calls `work`, and retries once if it fails, so that one failed system call does not leave a
/// device in a container. Returns the first error.
pub(in crate::live) fn try_twice<T>(
    mut work: impl FnMut() -> Result<T, LiveError>,
) -> Result<T, LiveError> {
    work().or_else(|error| work().map_err(|_| error))
}

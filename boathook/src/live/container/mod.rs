//! Opens, locks and enters a running container, for the operations of the crate. Only child
//! processes enter a container. This process stays in the host's namespaces.

pub(super) mod device_holders;
pub(super) mod hidden_program;
mod remove_files;

use std::path::PathBuf;
use std::time::Duration;

use device_class::config::Config;
use hook::attachment::{AttachmentRecord, LockedRecord, list_spec_rules, lock};
use hook::cgroup::DeviceCgroup;
use hook::container::{self, ContainerNamespace, ContainerRoot, ProcessState};
use hook::mount::SyscallSupport;
use hook::oci::Bundle;
use hook::sys;
use hook::sys::deadline::{self, Deadline};

use crate::live::ContainerChangeError;

pub(crate) use remove_files::{FileRemover, MaskLinks, is_device_node};

/// The id, the first process and the bundle of a running container. They come from the container's
/// engine or from the container's attachment record.
pub(crate) struct ContainerLocation {
    pub id: String,
    /// The process id of the container's first process, in the host's PID namespace.
    pub pid: i32,
    /// The start time of the first process ([`AttachmentRecord::start_time`]). `None` means that
    /// the start time is not known.
    pub start_time: Option<u64>,
    pub bundle_dir: PathBuf,
}

/// A running container, with its bundle and the namespaces of its first process.
pub(crate) struct RunningContainer {
    pub(crate) bundle: Bundle,
    pub(crate) namespace: ContainerNamespace,
    pub(crate) syscall_support: SyscallSupport,
}

impl RunningContainer {
    pub(crate) fn open(location: &ContainerLocation) -> Result<Self, ContainerChangeError> {
        let mut bundle = Bundle::read(&location.bundle_dir)?;
        let syscall_support = SyscallSupport::probe();
        let namespace = ContainerNamespace::from_running_container(
            location.pid,
            location.start_time,
            &bundle.rootfs,
            syscall_support.resolver(),
        )?;
        if namespace.has_own_user_namespace() && !bundle.has_user_namespace {
            return Err(ContainerChangeError::ForeignUserNamespace);
        }
        bundle.use_root_of_process(location.pid);
        Ok(RunningContainer {
            bundle,
            namespace,
            syscall_support,
        })
    }

    /// Moves this process into the container's mount namespace. Only a child process calls this
    /// function, because a process cannot return to its previous namespace.
    pub(crate) fn enter(&self) -> Result<ContainerRoot, ContainerChangeError> {
        let resolver = self.syscall_support.resolver();
        Ok(self.namespace.enter(&self.bundle.tmpfs_paths, resolver)?)
    }
}

/// A running container with its attachment record. This process holds the lock of the container.
pub(crate) struct LockedContainer {
    pub(crate) container: RunningContainer,
    pub(crate) record_file: LockedRecord,
    pub(crate) record: AttachmentRecord,
    /// The record as this process read it from the file. `None` means that there was no file.
    original_record: Option<AttachmentRecord>,
}

impl LockedContainer {
    /// Opens and locks a container for a command that a user started. Waits for the lock for at
    /// most five seconds, because the user waits too.
    pub(crate) fn open(
        location: &ContainerLocation,
        config: &Config,
    ) -> Result<Self, ContainerChangeError> {
        Self::open_with_lock_timeout(lock::COMMAND_LOCK_TIMEOUT, location, config)
    }

    /// Opens and locks the container that `record` belongs to. Waits for the lock for at most
    /// `lock_timeout`.
    pub(crate) fn from_record(
        record: &AttachmentRecord,
        lock_timeout: Duration,
        config: &Config,
    ) -> Result<Self, ContainerChangeError> {
        Self::open_with_lock_timeout(lock_timeout, &record.into(), config)
    }

    fn open_with_lock_timeout(
        lock_timeout: Duration,
        location: &ContainerLocation,
        config: &Config,
    ) -> Result<Self, ContainerChangeError> {
        require_root()?;
        let container = RunningContainer::open(location).map_err(|error| {
            let process_state =
                |start_time| container::read_process_state(location.pid, start_time);
            match location.start_time.map(process_state) {
                Some(ProcessState::Ended) => ContainerChangeError::ContainerEnded,
                _ => error,
            }
        })?;
        let start_time = container.namespace.read_start_time()?;
        let record_file = LockedRecord::open(&config.host_root, &location.id, lock_timeout)?;
        let mut new_record = AttachmentRecord {
            id: location.id.clone(),
            pid: location.pid,
            start_time,
            is_init: container::is_init_process(location.pid),
            bundle_dir: location.bundle_dir.clone(),
            spec_rules: Some(list_spec_rules(&container.bundle)),
            ..AttachmentRecord::default()
        };
        let cgroup = DeviceCgroup::from_membership(&container.namespace.read_cgroup_file()?)?;
        new_record.set_cgroup(cgroup.as_ref());
        let original_record = record_file.read()?;
        let record = match original_record.clone() {
            Some(existing_record) if existing_record.is_from_same_start(&new_record) => {
                existing_record.with_missing_fields(new_record)
            }
            Some(existing_record)
                if existing_record.has_attachments() && !existing_record.has_ended() =>
            {
                return Err(if existing_record.bundle_dir == location.bundle_dir {
                    ContainerChangeError::FirstProcessEnded
                } else {
                    ContainerChangeError::IdInUse {
                        bundle: existing_record.bundle_dir,
                    }
                });
            }
            _ => new_record,
        };
        Ok(LockedContainer {
            container,
            record_file,
            record,
            original_record,
        })
    }

    /// Writes `record` to the record file. Fails if the file has changed since this process read
    /// it, because `detach` may change the file without the container's lock.
    pub(crate) fn save_if_unchanged(
        &self,
        record: &AttachmentRecord,
    ) -> Result<(), ContainerChangeError> {
        let original_record = self.original_record.as_ref();
        if self
            .record_file
            .save_if_unchanged(original_record, record)?
        {
            Ok(())
        } else {
            Err(ContainerChangeError::ConcurrentDetach)
        }
    }
}

impl From<&AttachmentRecord> for ContainerLocation {
    fn from(record: &AttachmentRecord) -> Self {
        ContainerLocation {
            id: record.id.clone(),
            pid: record.pid,
            start_time: Some(record.start_time),
            bundle_dir: record.bundle_dir.clone(),
        }
    }
}

pub(crate) fn require_root() -> Result<(), ContainerChangeError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(ContainerChangeError::NotRoot);
    }
    Ok(())
}

/// Runs `work` in a child process, which may enter a container. Returns the warnings of `work`. The
/// child process is killed after a time limit, because the container can delay it.
pub(crate) fn run_in_child(
    work: impl FnOnce(&mut Vec<String>) -> Result<(), ContainerChangeError>,
) -> Result<Vec<String>, ContainerChangeError> {
    let answer = sys::process::run_in_child(deadline::CHILD_TIMEOUT, || {
        let _deadline = Deadline::start(deadline::DEADLINE_SECONDS);
        let mut warnings = Vec::new();
        let result = work(&mut warnings).map_err(|error| hook::log::format_error_chain(&error));
        serde_json::to_string(&(result, warnings)).unwrap_or_default()
    });
    let answer = answer
        .map_err(ContainerChangeError::Fork)?
        .ok_or(ContainerChangeError::Timeout)?;
    let answer: (Result<(), String>, Vec<String>) = serde_json::from_str(&answer)
        .map_err(|error| ContainerChangeError::ChildProcess(error.to_string()))?;
    match answer {
        (Ok(()), warnings) => Ok(warnings),
        (Err(error), _) => Err(ContainerChangeError::ChildProcess(error)),
    }
}

/// Calls `work`. If `work` fails, calls it once more, so that a single failed system call does not
/// leave a device in a container. If both calls fail, returns the first error.
pub(crate) fn try_twice<T, E>(mut work: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    work().or_else(|error| work().map_err(|_| error))
}

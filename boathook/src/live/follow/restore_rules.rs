//! Restores the device rules that a container has lost because its resource limits were updated. At
//! each such update crun, unlike runc, sets only the rules of the engine's specification. The rules
//! that the hook or `attach` added are lost.
//!
//! On cgroup v1, inotify watches the file to which the runtime writes rules. On cgroup v2, the
//! rules are a program, and the replacement of a program causes no inotify event. But runtimes also
//! write limits to other files of the cgroup at each update, so these files are watched.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::device::{Access, DeviceRule};
use device_class::name::ClassName;
use hook::attachment::{
    AttachmentRecord, LockedRecord, RecordedRule, list_step_rules, lock, record_files,
    to_device_rules,
};
use hook::cgroup::{self, DeviceCgroup};
use hook::log;
use hook::oci::Bundle;
use hook::planner::{self, Caller};
use hook::sys::deadline::{self, Deadline};
use nix::Result;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::live::ContainerChangeError;
use crate::live::container::hidden_program;

/// The maximum number of reads of one call of [`CgroupWatch::read_events`]. A read returns up to
/// 4096 bytes of events.
const MAX_READS: usize = 256;

/// An inotify instance that watches the directory of attachment records, and the cgroups of the
/// containers that have such records.
pub(super) struct CgroupWatch {
    inotify: Inotify,
    /// The watch of the directory of attachment records. `None` means that the directory is not
    /// watched.
    directory_watch: Option<WatchDescriptor>,
    /// The ids of the watched containers. The key is the watch of a file in the container's cgroup.
    ids_by_watch: BTreeMap<WatchDescriptor, String>,
}

/// The ids of the containers to which a batch of inotify events belongs.
#[derive(Default)]
pub(super) struct ContainersWithEvents {
    /// The containers that have a new record. Their cgroups are not watched yet.
    pub(super) new_ids: BTreeSet<String>,
    /// The containers whose device rules may have been replaced.
    pub(super) updated_ids: BTreeSet<String>,
}

impl ContainersWithEvents {
    pub(super) fn extend(&mut self, other: Self) {
        self.new_ids.extend(other.new_ids);
        self.updated_ids.extend(other.updated_ids);
    }
}

impl CgroupWatch {
    pub(super) fn open() -> Result<Self> {
        Ok(CgroupWatch {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            directory_watch: None,
            ids_by_watch: BTreeMap::new(),
        })
    }

    /// Begins to watch the directory of attachment records. Returns false if it is already watched.
    pub(super) fn watch_records(
        &mut self,
        host_root: &Path,
    ) -> std::result::Result<bool, ContainerChangeError> {
        if self.directory_watch.is_some() {
            return Ok(false);
        }
        let flags = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR;
        let directory = record_files::create_record_dir(host_root)?;
        let watch = self.inotify.add_watch(&directory, flags);
        self.directory_watch = Some(watch.map_err(ContainerChangeError::CgroupWatch)?);
        Ok(true)
    }

    pub(super) fn is_container_watched(&self, id: &str) -> bool {
        self.ids_by_watch
            .values()
            .any(|watched_id| watched_id == id)
    }

    /// Watches the files in a container's cgroups to which the runtime writes when it sets device
    /// rules, such as `devices.deny` on cgroup v1.
    pub(super) fn watch_cgroups(
        &mut self,
        id: &str,
        directories: &[PathBuf],
    ) -> std::result::Result<(), ContainerChangeError> {
        let files = directories
            .iter()
            .flat_map(|directory| cgroup::list_rule_change_files(directory));
        for file in files {
            match self.inotify.add_watch(&file, AddWatchFlags::IN_MODIFY) {
                Ok(watch) => drop(self.ids_by_watch.insert(watch, id.to_owned())),
                // The file does not exist, because the container has ended.
                Err(Errno::ENOENT | Errno::ENODEV) => {}
                Err(errno) => return Err(ContainerChangeError::CgroupWatch(errno)),
            }
        }
        Ok(())
    }

    /// Reads the pending events without waiting. Returns the containers that the events are about.
    /// The number of reads is limited, because a container can cause events faster than they are
    /// read. The next call reads the rest.
    pub(super) fn read_events(&mut self) -> Result<ContainersWithEvents> {
        let mut containers_with_events = ContainersWithEvents::default();
        for _ in 0..MAX_READS {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(containers_with_events),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    // The kernel has dropped events, so any container may be new or updated. All
                    // watched containers are reported here. The watch of the record directory is
                    // reset: the caller sets it again, and then treats all recorded containers as
                    // new.
                    containers_with_events
                        .updated_ids
                        .extend(self.ids_by_watch.values().cloned());
                    self.directory_watch = None;
                } else if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    // The watched file or directory was removed, and its watch with it (inotify(7),
                    // IN_IGNORED).
                    self.ids_by_watch.remove(&event.wd);
                    self.directory_watch = self.directory_watch.filter(|watch| *watch != event.wd);
                } else if let Some(id) = self.ids_by_watch.get(&event.wd) {
                    containers_with_events.updated_ids.insert(id.clone());
                } else if let Some(id) = event.name.as_ref().and_then(|name| name.to_str())
                    && !id.starts_with('.')
                    && !self.is_container_watched(id)
                {
                    containers_with_events.new_ids.insert(id.to_owned());
                }
            }
        }
        Ok(containers_with_events)
    }
}

impl AsFd for CgroupWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Returns the cgroup directories of the containers `ids`, with the container ids as keys.
pub(super) fn find_cgroup_directories(
    ids: &BTreeSet<String>,
    config: &Config,
) -> BTreeMap<String, Vec<PathBuf>> {
    let records = record_files::read_records(&config.host_root).into_iter();
    let records = records.filter(|record| ids.contains(&record.id));
    let directories_by_id = records.filter_map(|record| {
        let cgroup = record.find_cgroup().ok()??;
        Some((record.id, cgroup.list_own_directories()))
    });
    directories_by_id.collect()
}

/// Restores the recorded rules that the cgroups of the containers `ids` do not have. Returns the
/// errors, with the container ids as keys.
pub(super) fn restore_rules(ids: &BTreeSet<String>, config: &Config) -> BTreeMap<String, String> {
    let records = record_files::read_records(&config.host_root).into_iter();
    let records = records.filter(|record| ids.contains(&record.id));
    let errors_by_id =
        records.filter_map(|record| match restore_container_rules(&record, config) {
            Ok(()) | Err(ContainerChangeError::ContainerEnded) => None,
            Err(error) => Some((record.id, log::format_error_chain(&error))),
        });
    errors_by_id.collect()
}

/// Restores the rules of one container and logs the changes. The messages are logged after the lock
/// of the container is released, because the logger looks up the names of containers.
fn restore_container_rules(
    record: &AttachmentRecord,
    config: &Config,
) -> std::result::Result<(), ContainerChangeError> {
    let mut actions = Vec::new();
    let result = restore_with_lock(record, &mut actions, config);
    for action in actions {
        log::log_service_action(&format!("container {}: {action}", record.id));
    }
    result
}

/// Restores the rules of one container, and adds a description of each change to `actions`. Uses
/// only the container's record and cgroup, because the container may still be starting and cannot
/// be opened then.
fn restore_with_lock(
    record: &AttachmentRecord,
    actions: &mut Vec<&'static str>,
    config: &Config,
) -> std::result::Result<(), ContainerChangeError> {
    let deadline =
        Deadline::start(deadline::DEADLINE_SECONDS).map_err(ContainerChangeError::Fork)?;
    let record_file = LockedRecord::open(&config.host_root, &record.id, lock::FOLLOW_LOCK_TIMEOUT)?;
    // The record is read again, because another process may have changed it before this process
    // acquired the lock.
    let current_record = record_file.read()?;
    let current_record =
        current_record.filter(|current_record| current_record.is_from_same_start(record));
    let Some(record) = current_record.filter(AttachmentRecord::is_first_process_running) else {
        return Err(ContainerChangeError::ContainerEnded);
    };
    let original_record = record.clone();
    let Some(cgroup) = record.find_cgroup()? else {
        return Ok(());
    };
    let is_program_readable =
        !cgroup.is_device_program_hidden()? && !cgroup.has_hidden_exceptions()?;
    let reallowed_rules = find_rules_allowed_again(&record, &cgroup)?;
    if !reallowed_rules.is_empty() {
        for warning in record.revoke_rules(&reallowed_rules, &record)? {
            log::warning(&format!("container {}: {warning}", record.id));
        }
        actions.push("its device rules are revoked again");
    }
    let recorded_rules = to_device_rules(&record.rules);
    if recorded_rules.is_empty()
        || is_program_readable && cgroup.find_denied_rules(&recorded_rules)?.rules.is_empty()
    {
        return Ok(());
    }
    let mut bundle = Bundle::read(&record.bundle_dir)?;
    hidden_program::check_hidden_program(&cgroup, &record, &bundle, config)?;
    let record = remove_stale_rules(record, &mut bundle, config);
    let rules = to_device_rules(&record.rules);
    if !is_program_readable || !cgroup.find_denied_rules(&rules)?.rules.is_empty() {
        if record_file.read()?.as_ref() != Some(&original_record) {
            return Err(ContainerChangeError::ConcurrentDetach);
        }
        let spec_rules = record.to_spec_rules(&bundle.spec_devices.rules);
        for warning in cgroup.allow(&rules, &spec_rules)?.warnings() {
            log::warning(&format!("container {}: {warning}", record.id));
        }
        actions.push("its device rules are set again");
        // In the meantime, `detach` may have revoked some of these rules without the container's
        // lock. If so, `save_without_detached_devices` revokes them again.
        if record_file.read()?.as_ref() != Some(&original_record) {
            record_file
                .save_without_detached_devices(&original_record, &mut original_record.clone())?;
        }
    }
    deadline.cancel();
    Ok(())
}

/// Returns the rules of the specification that were revoked, but that the cgroup allows again. This
/// happens when the runtime updates the container, because it sets all rules of the specification.
///
/// If the kernel hides the cgroup's program, the program cannot be checked. Then all revoked rules
/// are treated as allowed again.
fn find_rules_allowed_again(
    record: &AttachmentRecord,
    cgroup: &DeviceCgroup,
) -> std::result::Result<Vec<RecordedRule>, ContainerChangeError> {
    let mut reallowed_rules = Vec::new();
    // In cgroup v1, a device list that allows everything does not show its exceptions. Such a list
    // is not written again here: each write causes an event, so this would be an endless loop.
    if record.revoked_spec_rules.is_empty() || cgroup.has_hidden_exceptions()? {
        return Ok(reallowed_rules);
    }
    let is_hidden = cgroup.is_device_program_hidden()?;
    for revoked_rule in &record.revoked_spec_rules {
        let number = revoked_rule.rule.number;
        let is_needed = record
            .rules
            .iter()
            .any(|recorded_rule| recorded_rule.rule.number == number);
        // An attached device needs this rule, or the revocation kept the access that the
        // specification allows. So there is nothing to revoke again.
        if is_needed || revoked_rule.keeps_spec_access {
            continue;
        }
        let mut is_allowed = is_hidden;
        // Only read and write access are compared. Runtimes allow mknod access for all devices,
        // which is harmless without read or write access.
        for access in [Access::READ, Access::WRITE] {
            let rule = DeviceRule { number, access };
            let was_revoked = revoked_rule.rule.access.contains(access);
            is_allowed |= was_revoked && cgroup.find_denied_rules(&[rule])?.rules.is_empty();
        }
        if is_allowed {
            reallowed_rules.push(revoked_rule.clone());
        }
    }
    Ok(reallowed_rules)
}

/// Returns the record without stale rules. A rule is stale if the host does not have its device, or
/// if its device has another number now. Another device may have the previous number.
///
/// A rule without owners is kept, because it is not known which device needs it.
fn remove_stale_rules(
    record: AttachmentRecord,
    bundle: &mut Bundle,
    config: &Config,
) -> AttachmentRecord {
    let mut planned_rules = Vec::new();
    // Each device is planned separately, because a plan with a removed device fails.
    for device in &record.devices {
        bundle.attach_requests = vec![device.to_attach_request(device.to_device_list())];
        let plan = planner::plan_container_injection(bundle, &Caller::Attach, config);
        planned_rules.extend(plan.iter().flat_map(|plan| list_step_rules(&plan.steps)));
    }
    let is_planned = |rule: &RecordedRule| {
        planned_rules
            .iter()
            .any(|planned_rule| planned_rule.rule == rule.rule)
    };
    let classes: BTreeSet<&ClassName> = record.devices.iter().map(|device| &device.class).collect();
    // The plans of single devices do not contain the nodes of capabilities, which belong to the
    // whole class. So for the rule of such a node, the node on the host is checked instead.
    let is_valid_class_rule = |rule: &RecordedRule| {
        let mut owners = rule.owners.iter();
        let node = rule.host_node.as_ref();
        owners.all(|owner| classes.iter().any(|class| owner.is_class(class)))
            && node.is_some_and(|node| !node.has_changed_number(&config.host_root))
    };
    let mut rules = record.rules;
    rules.retain(|rule| rule.owners.is_empty() || is_planned(rule) || is_valid_class_rule(rule));
    AttachmentRecord { rules, ..record }
}

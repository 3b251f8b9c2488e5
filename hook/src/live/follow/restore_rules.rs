//! Restores device rules that an update of a container has removed. crun, unlike runc, sets all
//! device rules of the engine's specification again at each update, so that rules that the hook or
//! `attach` added are lost.
//!
//! On cgroup v1, rules are removed by writing to a file, which is watched. On cgroup v2 the rules
//! are a program, whose replacement is not reported. But runtimes write limits to files of the same
//! cgroup after they replaced the program, so these files are watched.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::device::{Access, DeviceRule};
use device_class::name::ClassName;
use nix::Result;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::cgroup::{self, DeviceCgroup};
use crate::live::LiveError;
use crate::live::container::{hidden_program, lock, record_files, record_files::LockedRecord};
use crate::live::record::{AttachmentRecord, RecordedRule, list_step_rules, to_device_rules};
use crate::log;
use crate::oci::Bundle;
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline};

/// Watches the directory of records and the cgroups of their containers.
pub(super) struct CgroupWatch {
    inotify: Inotify,
    /// The watch of the directory of records.
    records: Option<WatchDescriptor>,
    /// The ids of the containers, by the watch of a file in the cgroup.
    containers: BTreeMap<WatchDescriptor, String>,
}

/// The ids of containers that inotify reported.
#[derive(Default)]
pub(super) struct ReportedContainers {
    /// The containers with a new record, whose cgroups are not watched yet.
    pub(super) new: BTreeSet<String>,
    /// The containers whose rules may have been replaced.
    pub(super) updated: BTreeSet<String>,
}

impl ReportedContainers {
    pub(super) fn extend(&mut self, other: Self) {
        self.new.extend(other.new);
        self.updated.extend(other.updated);
    }
}

impl CgroupWatch {
    pub(super) fn open() -> Result<Self> {
        Ok(CgroupWatch {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            records: None,
            containers: BTreeMap::new(),
        })
    }

    /// Begins to watch the directory of records. Returns false if it is watched already.
    pub(super) fn watch_records(&mut self, root: &Path) -> std::result::Result<bool, LiveError> {
        if self.records.is_some() {
            return Ok(false);
        }
        let flags = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR;
        let directory = record_files::create_record_directory(root)?;
        let watch = self.inotify.add_watch(&directory, flags);
        self.records = Some(watch.map_err(LiveError::CgroupWatch)?);
        Ok(true)
    }

    pub(super) fn is_watched(&self, id: &str) -> bool {
        self.containers.values().any(|watched| watched == id)
    }

    /// Watches the files in a container's cgroups that are written when its rules are set.
    pub(super) fn watch_cgroups(
        &mut self,
        id: &str,
        directories: &[PathBuf],
    ) -> std::result::Result<(), LiveError> {
        let files = directories
            .iter()
            .flat_map(|it| cgroup::list_files_set_with_rules(it));
        for file in files {
            match self.inotify.add_watch(&file, AddWatchFlags::IN_MODIFY) {
                Ok(watch) => drop(self.containers.insert(watch, id.to_owned())),
                // The container has ended.
                Err(Errno::ENOENT | Errno::ENODEV) => {}
                Err(errno) => return Err(LiveError::CgroupWatch(errno)),
            }
        }
        Ok(())
    }

    /// Reads all events that are pending, without waiting.
    pub(super) fn read_events(&mut self) -> Result<ReportedContainers> {
        let mut reported = ReportedContainers::default();
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(reported),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    // Events were lost: any container may have been updated, and any may be new.
                    reported.updated.extend(self.containers.values().cloned());
                    self.records = None;
                } else if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    // The watched file or directory was removed.
                    self.containers.remove(&event.wd);
                    self.records = self.records.filter(|records| *records != event.wd);
                } else if let Some(id) = self.containers.get(&event.wd) {
                    reported.updated.insert(id.clone());
                } else if let Some(id) = event.name.as_ref().and_then(|name| name.to_str())
                    && !id.starts_with('.')
                    && !self.is_watched(id)
                {
                    reported.new.insert(id.to_owned());
                }
            }
        }
    }
}

impl AsFd for CgroupWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Returns the directories of these containers' cgroups, by container id.
pub(super) fn find_cgroup_directories(
    ids: &BTreeSet<String>,
    config: &Config,
) -> BTreeMap<String, Vec<PathBuf>> {
    let records = record_files::read_records(&config.host_root).into_iter();
    let records = records.filter(|record| ids.contains(&record.id));
    let found = records.filter_map(|record| {
        let cgroup = record.find_cgroup().ok()??;
        Some((record.id, cgroup.list_own_directories()))
    });
    found.collect()
}

/// Restores the recorded rules that these containers lack. Returns the errors, by container id.
pub(super) fn restore_rules(ids: &BTreeSet<String>, config: &Config) -> BTreeMap<String, String> {
    let records = record_files::read_records(&config.host_root).into_iter();
    let records = records.filter(|record| ids.contains(&record.id));
    let failed = records.filter_map(|record| match restore_container_rules(&record, config) {
        Ok(()) | Err(LiveError::ContainerEnded) => None,
        Err(error) => Some((record.id, log::chain(&error))),
    });
    failed.collect()
}

/// Restores the rules of one container by its record and its cgroup. The container is not opened,
/// because it may still be starting.
fn restore_container_rules(
    record: &AttachmentRecord,
    config: &Config,
) -> std::result::Result<(), LiveError> {
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    let record_file = LockedRecord::open(&config.host_root, &record.id, lock::FOLLOW_LIMIT)?;
    // Another process may have changed the record before it was locked.
    let current = record_file.read()?;
    let current = current.filter(|current| current.is_from_same_start(record));
    let Some(record) = current.filter(AttachmentRecord::is_first_process_running) else {
        return Err(LiveError::ContainerEnded);
    };
    let as_read = record.clone();
    let Some(cgroup) = record.find_cgroup()? else {
        return Ok(());
    };
    let is_shown = !cgroup.has_hidden_program()? && !cgroup.has_hidden_exceptions()?;
    let revoked = find_allowed_again(&record, &cgroup)?;
    if !revoked.is_empty() {
        for warning in record.revoke(&revoked, &record)? {
            log::warning(&format!("container {}: {warning}", record.id));
        }
        log::report_action(&format!(
            "container {}: its device rules are revoked again",
            record.id
        ));
    }
    let recorded = to_device_rules(&record.rules);
    if recorded.is_empty() || is_shown && cgroup.find_denied_rules(&recorded)?.rules.is_empty() {
        return Ok(());
    }
    let mut bundle = Bundle::read(&record.bundle)?;
    hidden_program::check_hidden_program(&cgroup, &record, &bundle, config)?;
    let record = remove_stale_rules(record, &mut bundle, config);
    let rules = to_device_rules(&record.rules);
    if !is_shown || !cgroup.find_denied_rules(&rules)?.rules.is_empty() {
        if record_file.read()?.as_ref() != Some(&as_read) {
            return Err(LiveError::ConcurrentDetach);
        }
        let spec = record.to_spec_rules(&bundle.spec_devices.rules);
        for warning in cgroup.allow(&rules, &spec)?.warnings() {
            log::warning(&format!("container {}: {warning}", record.id));
        }
        log::report_action(&format!(
            "container {}: its device rules are set again",
            record.id
        ));
        // `detach` may have revoked some of them meanwhile, without the container's lock.
        if record_file.read()?.as_ref() != Some(&as_read) {
            record_file.save_merged(&as_read, &mut as_read.clone())?;
        }
    }
    deadline.cancel();
    Ok(())
}

/// Returns the revoked rules of the specification that the cgroup allows again: an update sets all
/// rules of the specification. If the kernel hides the cgroup's program, returns all revoked rules.
fn find_allowed_again(
    record: &AttachmentRecord,
    cgroup: &DeviceCgroup,
) -> std::result::Result<Vec<RecordedRule>, LiveError> {
    let mut found = Vec::new();
    // A list of cgroup v1 that allows everything does not show what it denies. To write to it each
    // time would cause the next event.
    if record.revoked_spec_rules.is_empty() || cgroup.has_hidden_exceptions()? {
        return Ok(found);
    }
    let is_hidden = cgroup.has_hidden_program()?;
    for revoked in &record.revoked_spec_rules {
        let number = revoked.rule.number;
        let is_needed = record.rules.iter().any(|it| it.rule.number == number);
        // What the specification allows beside an attached device was not revoked.
        if is_needed || revoked.beside_spec {
            continue;
        }
        let mut is_allowed = is_hidden;
        // Runtimes allow to create all nodes, which does no harm without reading and writing.
        for access in [Access::READ, Access::WRITE] {
            let rule = DeviceRule { number, access };
            let is_part = revoked.rule.access.contains(access);
            is_allowed |= is_part && cgroup.find_denied_rules(&[rule])?.rules.is_empty();
        }
        if is_allowed {
            found.push(revoked.clone());
        }
    }
    Ok(found)
}

/// Removes the rules of devices that the host does not have, or that have other numbers now, from a
/// record: another device may have such a number now. Rules without users stay.
fn remove_stale_rules(
    record: AttachmentRecord,
    bundle: &mut Bundle,
    config: &Config,
) -> AttachmentRecord {
    let mut planned = Vec::new();
    // Each device is planned separately, because the plan fails for a device that was removed.
    for device in &record.devices {
        bundle.attached = vec![device.to_grant(device.to_request())];
        let plan = planner::plan_for(bundle, &Caller::Attach, config);
        planned.extend(plan.iter().flat_map(|plan| list_step_rules(&plan.steps)));
    }
    let is_planned = |rule: &RecordedRule| planned.iter().any(|planned| planned.rule == rule.rule);
    let classes: BTreeSet<&ClassName> = record.devices.iter().map(|it| &it.class).collect();
    // The plan has no node of a capability, which is for a class as such.
    let is_for_class = |rule: &RecordedRule| {
        let mut users = rule.users.iter();
        let node = rule.host_node.as_ref();
        users.all(|user| classes.iter().any(|class| user.is_class(class)))
            && node.is_some_and(|node| !node.has_other_number(&config.host_root))
    };
    let mut rules = record.rules;
    rules.retain(|rule| rule.users.is_empty() || is_planned(rule) || is_for_class(rule));
    AttachmentRecord { rules, ..record }
}

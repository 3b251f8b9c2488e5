//! Containers that are updated: crun, unlike runc, sets their device rules again from those of
//! the engine's specification, and what was added is lost. It is added again.
//!
//! On cgroup v1 rules are taken away by a file, which is watched. On v2 they are a program,
//! and nobody is told of one; but limits are written into files of the same cgroup after it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::slice;

use device_class::config::Config;
use nix::Result;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::cgroup;
use crate::live::attachment_record::AttachmentRecord;
use crate::live::record_files::{self, LockedRecord};
use crate::live::recorded_rule::{RecordedRule, rules_of_steps};
use crate::live::{LiveError, detach, hidden_program, lock};
use crate::log;
use crate::oci::Bundle;
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline};

/// Watches the records, and the cgroups of their containers.
pub(super) struct CgroupWatch {
    inotify: Inotify,
    records: Option<WatchDescriptor>,
    /// The container whose cgroup a file is in.
    files: BTreeMap<WatchDescriptor, String>,
}

/// Containers to be looked at, by id.
#[derive(Default)]
pub(super) struct ReportedContainers {
    /// Those whose record is new, and that are not watched.
    pub(super) new: BTreeSet<String>,
    /// Those whose rules may have been set again.
    pub(super) written: BTreeSet<String>,
}

impl CgroupWatch {
    pub(super) fn open() -> Result<Self> {
        Ok(CgroupWatch {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            records: None,
            files: BTreeMap::new(),
        })
    }

    /// Watches the records of the host whose root is at `root`. True: it did not.
    pub(super) fn watch_records(&mut self, root: &Path) -> std::result::Result<bool, LiveError> {
        if self.records.is_some() {
            return Ok(false);
        }
        let flags = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR;
        let watch = self
            .inotify
            .add_watch(&record_files::directory(root)?, flags);
        self.records = Some(watch.map_err(LiveError::Watch)?);
        Ok(true)
    }

    pub(super) fn watches(&self, id: &str) -> bool {
        self.files.values().any(|watched| watched == id)
    }

    /// Watches what is written in a container's cgroups when their rules are set.
    pub(super) fn watch(
        &mut self,
        id: &str,
        directories: &[PathBuf],
    ) -> std::result::Result<(), LiveError> {
        let files = directories.iter().flat_map(|it| cgroup::set_with_rules(it));
        for file in files {
            match self.inotify.add_watch(&file, AddWatchFlags::IN_MODIFY) {
                Ok(watch) => drop(self.files.insert(watch, id.to_owned())),
                // The container has ended.
                Err(Errno::ENOENT | Errno::ENODEV) => {}
                Err(errno) => return Err(LiveError::Watch(errno)),
            }
        }
        Ok(())
    }

    /// Takes what was reported.
    pub(super) fn take(&mut self) -> Result<ReportedContainers> {
        let mut updated = ReportedContainers::default();
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(updated),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            };
            for event in events {
                if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                    updated.written.extend(self.files.values().cloned());
                } else if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                    // What was watched is gone.
                    self.files.remove(&event.wd);
                    self.records = self.records.filter(|records| *records != event.wd);
                } else if let Some(id) = self.files.get(&event.wd) {
                    updated.written.insert(id.clone());
                } else if let Some(id) = event.name.as_ref().and_then(|name| name.to_str())
                    && !id.starts_with('.')
                    && !self.watches(id)
                {
                    updated.new.insert(id.to_owned());
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

/// The cgroups of these containers.
pub(super) fn cgroups_of(
    ids: &BTreeSet<String>,
    config: &Config,
) -> BTreeMap<String, Vec<PathBuf>> {
    let records = record_files::all(&config.host_root).into_iter();
    let records = records.filter(|record| ids.contains(&record.id));
    let found = records.filter_map(|record| {
        let cgroup = record.find_cgroup().ok()??;
        Some((record.id, cgroup.own_directories()))
    });
    found.collect()
}

/// Adds to these containers' rules what they lack of their records. Returns why not, by id.
pub(super) fn mend(ids: &BTreeSet<String>, config: &Config) -> BTreeMap<String, String> {
    let records = record_files::all(&config.host_root).into_iter();
    let records = records.filter(|record| ids.contains(&record.id));
    let failed = records.filter_map(|record| match mend_one(&record, config) {
        Ok(()) | Err(LiveError::Ended) => None,
        Err(error) => Some((record.id, log::chain(&error))),
    });
    failed.collect()
}

/// The container itself is not needed, which may be in the middle of its start.
fn mend_one(record: &AttachmentRecord, config: &Config) -> std::result::Result<(), LiveError> {
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    let records = LockedRecord::open(&config.host_root, &record.id, lock::LITTLE_PATIENCE)?;
    // As it is while nobody else changes the container.
    let now = records.read()?.filter(|now| now.is_of_same_start(record));
    let Some(record) = now.filter(AttachmentRecord::first_process_runs) else {
        return Err(LiveError::Ended);
    };
    let Some(cgroup) = record.find_cgroup()? else {
        return Ok(());
    };
    let recorded = detach::rules(&record);
    let is_shown = !cgroup.hides()? && !cgroup.hides_exceptions()?;
    if recorded.is_empty() || is_shown && cgroup.denied(&recorded)?.rules.is_empty() {
        return Ok(());
    }
    let mut bundle = Bundle::read(&record.bundle)?;
    hidden_program::is_hidden(&cgroup, &record, &bundle, config)?;
    let record = still_there(record, &mut bundle, config);
    let rules = detach::rules(&record);
    if !is_shown || !cgroup.denied(&rules)?.rules.is_empty() {
        let spec = record.regenerated(&bundle.spec_devices.rules);
        for warning in cgroup.allow(&rules, &spec)?.warnings() {
            log::warning(&format!("container {}: {warning}", record.id));
        }
        log::info(|| format!("container {}: its device rules are set again", record.id));
    }
    deadline.cancel();
    Ok(())
}

/// A record without the rules of devices that the host has no more, or with other numbers: what
/// has such a number now may be another device. Those for the container as such stay.
fn still_there(record: AttachmentRecord, bundle: &mut Bundle, config: &Config) -> AttachmentRecord {
    let mut there = Vec::new();
    // Each by itself: one that is gone has no plan.
    for device in &record.devices {
        bundle.attached = AttachmentRecord::grants(slice::from_ref(device).iter());
        let plan = planner::plan_for(bundle, &Caller::Attach, config);
        there.extend(plan.iter().flat_map(|plan| rules_of_steps(&plan.steps)));
    }
    let is_there = |rule: &RecordedRule| there.iter().any(|there| there.rule == rule.rule);
    let classes: BTreeSet<&str> = record.devices.iter().map(|it| &*it.class).collect();
    // A capability's node is not in a plan for the devices alone.
    let is_of_class = |rule: &RecordedRule| {
        let mut users = rule.why.iter();
        let host = rule.host.as_ref();
        users.all(|user| classes.contains(&**user))
            && host.is_some_and(|host| !host.has_other_number(&config.host_root))
    };
    let mut rules = record.rules;
    rules.retain(|rule| rule.why.is_empty() || is_there(rule) || is_of_class(rule));
    AttachmentRecord { rules, ..record }
}

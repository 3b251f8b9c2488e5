//! One look at the host and at all containers, in a child process of the follower.

use std::mem;
use std::slice;

use device_class::config::Config;
use device_class::name::DeviceRef;
use nix::errno::Errno;

use super::state::ContainerState;
use super::state::FollowerState;
use crate::live::LiveError;
use crate::live::announce::{ChangedContainer, DeviceChange, announce};
use crate::live::container::{lock, record_files};
use crate::live::reconcile::{
    FollowedDevice, HostSnapshot, RemovedDevices, find_removed, remove_nodes, replace_devices,
    revoke_stale,
};
use crate::live::record::AttachmentRecord;
use crate::log;
use crate::sys;
use crate::sys::deadline::{self, Deadline, Stage};
use crate::sys::process::Child;

/// The largest number of containers that are changed at the same time.
const MAX_CHILDREN: usize = 8;

pub(super) struct Look<'a> {
    pub(super) state: &'a mut FollowerState,
    /// The time since the follower started, in seconds.
    pub(super) now: u64,
    /// For how many seconds a container is left alone after a change of it failed.
    pub(super) pause: u64,
    pub(super) config: &'a Config,
}

/// A container that a child process is changing.
struct ContainerInWork<'r> {
    record: &'r AttachmentRecord,
    /// The devices that the container has afterwards, as [`FollowerState::devices`] has them.
    devices: ContainerState,
    child: Child,
}

impl Look<'_> {
    /// Revokes stale rules in all containers, and then replaces the devices of each container that
    /// has changed, in a child process for each.
    pub(super) fn run(mut self) {
        let config = self.config;
        let (records, unreadable) = record_files::read_all_and_errors(&config.host_root);
        for error in unreadable.difference(&self.state.unreadable) {
            log::warning(error);
        }
        self.state.unreadable = unreadable;
        let snapshot = self.take_snapshot(&records);
        let records = records.iter().map(|it| it.with_arrivals(&snapshot));
        let records: Vec<AttachmentRecord> = records.collect();
        // Rules are revoked in all containers before any container can keep this process waiting.
        let mut not_revoked = Vec::new();
        let mut revoked = Vec::new();
        for record in &records {
            let removed = find_removed(record, &snapshot, &config.host_root);
            match revoke_stale(record, &removed, &snapshot, lock::FOLLOW_LIMIT, config) {
                Ok(was_revoked) => revoked.push((record, removed, was_revoked)),
                Err(_) => not_revoked.push((record, removed)),
            }
        }
        let mut working = Vec::new();
        let mut changed = Vec::new();
        for (record, removed, was_revoked) in revoked {
            if was_revoked {
                // The rule may be of a device that went and came back since the snapshot. Without
                // its rule the container is not as it was after its last change.
                self.state.devices.remove(&record.id);
            }
            let followed = snapshot.followed_devices(record);
            let devices = container_state(record, &followed, &removed, &snapshot);
            if followed.is_empty() && removed.is_empty() {
                self.state.failed.remove(&record.id);
                if !record.waiting.is_empty() {
                    self.state.devices.insert(record.id.clone(), devices);
                }
                continue;
            }
            if !self.is_due(&record.id, &devices) {
                continue;
            }
            while working.len() == MAX_CHILDREN {
                self.collect_ended(&mut working, &mut changed);
            }
            let work = || {
                let done = change_container(record, &followed, &removed, &snapshot, config);
                let done = done.map(|done| done.map(|was_changed| was_changed | was_revoked));
                let done = done.map_err(|error| log::chain(&error));
                serde_json::to_string(&done).unwrap_or_default()
            };
            match sys::process::start_child(deadline::LIMIT, work) {
                Ok(child) => working.push(ContainerInWork {
                    record,
                    devices,
                    child,
                }),
                Err(errno) => changed.extend(self.take_answer(record, devices, Err(errno))),
            }
        }
        while !working.is_empty() {
            self.collect_ended(&mut working, &mut changed);
        }
        // Another process may have had the lock. The nodes stay until the rules are revoked.
        for (record, removed) in not_revoked {
            let error = match revoke_stale(record, &removed, &snapshot, lock::FOLLOW_LIMIT, config)
            {
                Ok(_) => "its rules are revoked; its nodes will be replaced later".to_owned(),
                Err(error) => log::chain(&error),
            };
            self.note_failure(&record.id, error);
        }
        announce(&changed, &snapshot, config);
        self.forget_ended(&records);
    }

    /// Looks up the classes of all containers. Logs each class that cannot be used, once.
    fn take_snapshot(&mut self, records: &[AttachmentRecord]) -> HostSnapshot {
        let deadline = Deadline::start(deadline::SECONDS);
        Stage::Planning.begin();
        let mut snapshot = HostSnapshot::take(records, self.config);
        if let Ok(deadline) = deadline {
            deadline.cancel();
        }
        let unusable = mem::take(&mut snapshot.unusable);
        for (class, reason) in &unusable {
            if self.state.unusable.get(class) != Some(reason) {
                log::warning(&format!(
                    "class {class}: containers get none of its devices again, and lose those \
                     that are unplugged: {reason}"
                ));
            }
        }
        self.state.unusable = unusable;
        snapshot
    }

    /// Whether a container is to be changed: its devices are others than after the last change,
    /// and the last failure is long enough ago.
    fn is_due(&self, id: &str, devices: &ContainerState) -> bool {
        let is_changed = self
            .state
            .devices
            .get(id)
            .is_none_or(|last| last != devices);
        let failed = self.state.failed.get(id);
        let waits = failed.is_some_and(|(at, _)| self.now.saturating_sub(*at) < self.pause);
        is_changed && !waits
    }

    /// Waits a moment, and takes the answers of the children that have ended.
    fn collect_ended<'r>(
        &mut self,
        working: &mut Vec<ContainerInWork<'r>>,
        changed: &mut Vec<ChangedContainer<'r>>,
    ) {
        for mut container in mem::take(working) {
            let answer = match container.child.poll() {
                Ok(None) => {
                    working.push(container);
                    continue;
                }
                Ok(Some(answer)) => Ok(answer),
                Err(errno) => Err(errno),
            };
            let ContainerInWork {
                record, devices, ..
            } = container;
            changed.extend(self.take_answer(record, devices, answer));
        }
    }

    /// Takes the answer of the child for one container. Returns `None` if the container was not
    /// changed, because of an error or because its devices changed meanwhile.
    fn take_answer<'r>(
        &mut self,
        record: &'r AttachmentRecord,
        devices: ContainerState,
        answer: Result<Option<String>, Errno>,
    ) -> Option<ChangedContainer<'r>> {
        let error = match answer {
            Ok(Some(answer)) => match serde_json::from_str(&answer) {
                Ok(Ok(None)) => {
                    self.state.devices.remove(&record.id);
                    self.state.failed.remove(&record.id);
                    return None;
                }
                Ok(Ok(Some(was_changed))) => {
                    self.state.devices.insert(record.id.clone(), devices);
                    self.state.failed.remove(&record.id);
                    let change = if was_changed {
                        DeviceChange::Replaced
                    } else {
                        DeviceChange::Unchanged
                    };
                    return Some((record, change));
                }
                Ok(Err(error)) => error,
                Err(error) => error.to_string(),
            },
            Ok(None) => LiveError::TooSlow.to_string(),
            Err(errno) => log::chain(&LiveError::Fork(errno)),
        };
        self.note_failure(&record.id, error);
        None
    }

    /// Notes that a container could not be changed. It is left alone for the pause, and then
    /// changed even if its devices are as they were, because a part of the change may be done.
    fn note_failure(&mut self, id: &str, error: String) {
        let last = self.state.failed.get(id);
        if last.is_none_or(|(_, last)| *last != error) {
            log::warning(&format!("container {id}: {error}"));
        }
        self.state.devices.remove(id);
        self.state.failed.insert(id.to_owned(), (self.now, error));
    }

    /// Removes the state and the records of containers that have ended.
    fn forget_ended(&mut self, records: &[AttachmentRecord]) {
        let runs = |id: &String| records.iter().any(|record| record.id == *id);
        let mut known = self.state.devices.keys().chain(self.state.failed.keys());
        if known.any(|id| !runs(id)) {
            self.state.devices.retain(|id, _| runs(id));
            self.state.failed.retain(|id, _| runs(id));
            record_files::prune(&self.config.host_root);
        }
    }
}

fn container_state(
    record: &AttachmentRecord,
    followed: &[FollowedDevice<'_>],
    removed: &RemovedDevices,
    snapshot: &HostSnapshot,
) -> ContainerState {
    let announcements = record.devices.iter().map(|device| {
        let of_device = snapshot.announcements_of(device);
        of_device.map(<[_]>::to_vec)
    });
    let followed = followed
        .iter()
        .map(|followed| (followed.device.device_ref(), followed.present.clone()));
    ContainerState {
        start_time: record.start_time,
        followed: followed.collect(),
        class_nodes: snapshot.class_nodes(record),
        announcements: announcements.collect(),
        removed: removed.clone(),
        rules: record.rules.clone(),
    }
}

/// Changes one container. Returns whether anything was changed, or `None` if the container has
/// ended or its devices changed meanwhile: the event of that change causes the next look.
fn change_container(
    record: &AttachmentRecord,
    followed: &[FollowedDevice<'_>],
    removed: &RemovedDevices,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<Option<bool>, LiveError> {
    let replaced = if followed.is_empty() {
        Ok(false)
    } else {
        replace_devices(record, followed, snapshot, lock::FOLLOW_LIMIT, config)
    };
    // Nodes are left if the replacement failed, and of classes that cannot be used.
    let is_left = |removed: &&DeviceRef| {
        let mut followed = followed.iter();
        replaced.is_err() || !followed.any(|it| it.device.device_ref() == **removed)
    };
    let left: RemovedDevices = removed.iter().filter(is_left).cloned().collect();
    let nodes_removed = remove_nodes(record, &left, config);
    let has_changed_again = || {
        let now = HostSnapshot::take(slice::from_ref(record), config);
        now.followed_devices(record) != followed
    };
    match replaced.and_then(|was_changed| nodes_removed.map(|()| was_changed)) {
        Ok(was_changed) => Ok(Some(was_changed)),
        Err(LiveError::Ended) => Ok(None),
        Err(_) if has_changed_again() => Ok(None),
        Err(error) => Err(error),
    }
}

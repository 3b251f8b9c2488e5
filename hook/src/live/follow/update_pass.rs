//! One pass of the follower over all containers, in a child process. It revokes stale rules in all
//! containers first, because any container may keep it waiting after that.

use std::hash::RandomState;
use std::mem;
use std::slice;

use device_class::config::Config;
use device_class::name::DeviceRef;
use nix::errno::Errno;

use super::state::{ContainerState, FollowerState, StateDigest};
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

/// One pass of the follower over all containers.
pub(super) struct UpdatePass<'a> {
    pub(super) state: &'a mut FollowerState,
    /// The time since the follower started, in seconds.
    pub(super) now: u64,
    /// The time in seconds after which a failed change of a container is retried.
    pub(super) pause: u64,
    /// The key of the digests, which is the same for all passes.
    pub(super) digest_key: &'a RandomState,
    pub(super) config: &'a Config,
}

/// A container that a child process is changing.
struct ContainerUpdate<'r> {
    record: &'r AttachmentRecord,
    /// The digest of the container's state after the change.
    new_state: Option<StateDigest>,
    child: Child,
}

impl UpdatePass<'_> {
    /// Revokes stale rules in all containers, and then replaces the devices of each container that
    /// has changed, in a child process for each.
    pub(super) fn run(mut self) {
        let config = self.config;
        let (records, unreadable) = record_files::read_records_and_errors(&config.host_root);
        for error in unreadable.difference(&self.state.unreadable_records) {
            log::warning(error);
        }
        self.state.unreadable_records = unreadable;
        let snapshot = self.take_snapshot(&records);
        let records = records.iter().map(|it| it.with_arrivals(&snapshot));
        let records: Vec<AttachmentRecord> = records.collect();
        // The rules are revoked in all containers before a container can delay this process.
        let mut not_revoked = Vec::new();
        let mut revoked = Vec::new();
        for record in &records {
            let removed = find_removed(record, &snapshot, &config.host_root);
            match revoke_stale(record, &removed, &snapshot, lock::FOLLOW_LIMIT, config) {
                Ok(was_revoked) => revoked.push((record, removed, was_revoked)),
                Err(_) => not_revoked.push((record, removed)),
            }
        }
        let mut updates = Vec::new();
        let mut changed = Vec::new();
        for (record, removed, was_revoked) in revoked {
            if was_revoked {
                // The rule may be for a device that was removed and came back since the snapshot.
                // Then the new state equals the one after the last change, but the rule is missing.
                self.state.containers.remove(&record.id);
            }
            let followed = snapshot.list_followed_devices(record);
            let new_state = to_container_state(record, &followed, &removed, &snapshot)
                .to_digest(self.digest_key);
            if followed.is_empty() && removed.is_empty() {
                self.state.failures.remove(&record.id);
                if !record.awaited_requests.is_empty() {
                    self.state.containers.insert(record.id.clone(), new_state);
                }
                continue;
            }
            if !self.needs_update(&record.id, new_state) {
                continue;
            }
            while updates.len() == MAX_CHILDREN {
                self.collect_ended(&mut updates, &mut changed);
            }
            let work = || {
                let done = change_container(record, &followed, &removed, &snapshot, config);
                let done = done.map(|done| done.map(|was_changed| was_changed | was_revoked));
                let done = done.map_err(|error| log::chain(&error));
                serde_json::to_string(&done).unwrap_or_default()
            };
            match sys::process::start_child(deadline::LIMIT, work) {
                Ok(child) => updates.push(ContainerUpdate {
                    record,
                    new_state,
                    child,
                }),
                Err(errno) => changed.extend(self.apply_answer(record, new_state, Err(errno))),
            }
        }
        while !updates.is_empty() {
            self.collect_ended(&mut updates, &mut changed);
        }
        // Another process may have had the lock. The nodes of these containers are removed only after
        // the rules are revoked.
        for (record, removed) in not_revoked {
            let error = match revoke_stale(record, &removed, &snapshot, lock::FOLLOW_LIMIT, config)
            {
                Ok(_) => "its rules are revoked; its nodes will be replaced later".to_owned(),
                Err(error) => log::chain(&error),
            };
            self.record_failure(&record.id, error);
        }
        announce(&changed, &snapshot, config);
        self.remove_ended(&records);
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
            if self.state.unusable_classes.get(class) != Some(reason) {
                log::warning(&format!(
                    "class {class}: containers get none of its devices again, and lose those \
                     that are unplugged: {reason}"
                ));
            }
        }
        self.state.unusable_classes = unusable;
        snapshot
    }

    /// Whether a container must be changed: its state differs from the one after the last change, and
    /// the pause after the last failure has passed.
    fn needs_update(&self, id: &str, new_state: Option<StateDigest>) -> bool {
        let last = self.state.containers.get(id).copied().flatten();
        let is_changed = last.is_none() || last != new_state;
        let failed = self.state.failures.get(id);
        let waits = failed.is_some_and(|(at, _)| self.now.saturating_sub(*at) < self.pause);
        is_changed && !waits
    }

    /// Waits for at most some milliseconds, and applies the answers of the children that have ended.
    fn collect_ended<'r>(
        &mut self,
        updates: &mut Vec<ContainerUpdate<'r>>,
        changed: &mut Vec<ChangedContainer<'r>>,
    ) {
        for mut container in mem::take(updates) {
            let answer = match container.child.poll() {
                Ok(None) => {
                    updates.push(container);
                    continue;
                }
                Ok(Some(answer)) => Ok(answer),
                Err(errno) => Err(errno),
            };
            let ContainerUpdate {
                record, new_state, ..
            } = container;
            changed.extend(self.apply_answer(record, new_state, answer));
        }
    }

    /// Stores the result of the child for one container in the state. Returns `None` if the container
    /// was not changed, because of an error or because its devices changed meanwhile.
    fn apply_answer<'r>(
        &mut self,
        record: &'r AttachmentRecord,
        new_state: Option<StateDigest>,
        answer: Result<Option<String>, Errno>,
    ) -> Option<ChangedContainer<'r>> {
        let error = match answer {
            Ok(Some(answer)) => match serde_json::from_str(&answer) {
                Ok(Ok(None)) => {
                    self.state.containers.remove(&record.id);
                    self.state.failures.remove(&record.id);
                    return None;
                }
                Ok(Ok(Some(was_changed))) => {
                    self.state.containers.insert(record.id.clone(), new_state);
                    self.state.failures.remove(&record.id);
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
            Ok(None) => LiveError::Timeout.to_string(),
            Err(errno) => log::chain(&LiveError::Fork(errno)),
        };
        self.record_failure(&record.id, error);
        None
    }

    /// Records that a container could not be changed. The change is retried after the pause even if
    /// the devices are the same, because a part of the change may have been made.
    fn record_failure(&mut self, id: &str, error: String) {
        let last = self.state.failures.get(id);
        if last.is_none_or(|(_, last)| *last != error) {
            log::warning(&format!("container {id}: {error}"));
        }
        self.state.containers.remove(id);
        self.state.failures.insert(id.to_owned(), (self.now, error));
    }

    /// Removes the state and the records of containers that have ended.
    fn remove_ended(&mut self, records: &[AttachmentRecord]) {
        let runs = |id: &String| records.iter().any(|record| record.id == *id);
        let mut known = self
            .state
            .containers
            .keys()
            .chain(self.state.failures.keys());
        if known.any(|id| !runs(id)) {
            self.state.containers.retain(|id, _| runs(id));
            self.state.failures.retain(|id, _| runs(id));
            record_files::prune_records(&self.config.host_root);
        }
    }
}

fn to_container_state(
    record: &AttachmentRecord,
    followed: &[FollowedDevice<'_>],
    removed: &RemovedDevices,
    snapshot: &HostSnapshot,
) -> ContainerState {
    let announcements = record.devices.iter().map(|device| {
        let announcements = snapshot.find_announcements(device);
        announcements.map(<[_]>::to_vec)
    });
    let followed = followed
        .iter()
        .map(|followed| (followed.device.device_ref(), followed.present.clone()));
    ContainerState {
        start_time: record.start_time,
        followed: followed.collect(),
        class_nodes: snapshot.list_class_nodes(record),
        announcements: announcements.collect(),
        removed: removed.clone(),
        rules: record.rules.clone(),
    }
}

/// Changes one container. Returns whether anything was changed, or `None` if the container has
/// ended or its devices changed meanwhile. The event of that change causes the next pass.
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
    // The replacement does not remove the nodes if it fails, or if the class cannot be used.
    let is_remaining = |removed: &&DeviceRef| {
        let mut followed = followed.iter();
        replaced.is_err() || !followed.any(|it| it.device.device_ref() == **removed)
    };
    let remaining: RemovedDevices = removed.iter().filter(is_remaining).cloned().collect();
    let nodes_removed = remove_nodes(record, &remaining, config);
    let has_changed_again = || {
        let now = HostSnapshot::take(slice::from_ref(record), config);
        now.list_followed_devices(record) != followed
    };
    match replaced.and_then(|was_changed| nodes_removed.map(|()| was_changed)) {
        Ok(was_changed) => Ok(Some(was_changed)),
        Err(LiveError::ContainerEnded) => Ok(None),
        Err(_) if has_changed_again() => Ok(None),
        Err(error) => Err(error),
    }
}

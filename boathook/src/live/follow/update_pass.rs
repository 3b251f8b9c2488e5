//! One pass of `boathook follow` over all containers, in a child process. The pass revokes the
//! stale rules of all containers first, because any container may delay the steps that follow.

use std::hash::RandomState;
use std::mem;
use std::slice;

use device_class::config::Config;
use device_class::name::DeviceRef;
use hook::attachment::AttachmentRecord;
use hook::attachment::{lock, record_files};
use hook::container;
use hook::log;
use hook::sys;
use hook::sys::deadline::{self, Deadline, Stage};
use hook::sys::process::Child;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::state::{ContainerState, FollowerState, StateDigest};
use crate::live::ContainerChangeError;
use crate::live::announce::{ChangedContainer, DeviceChange, announce_changes};
use crate::live::reconcile::{
    FollowedDevice, HostSnapshot, RemovedDevices, copy_with_present_devices, find_removed_devices,
    remove_nodes, replace_devices, revoke_stale_rules, revoke_stale_rules_without_lock,
};

/// The maximum number of containers that are changed at the same time, each by a child process.
const MAX_CHILD_PROCESSES: usize = 8;

/// The maximum number of passes in which a container may count as starting. While its hooks run,
/// its first process does not have the container's root yet. If the process still lacks this root
/// after so many passes, it has changed its root itself.
const MAX_START_ATTEMPTS: u32 = 50;

/// The result of an attempt to change one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum ContainerOutcome {
    Changed,
    Unchanged,
    /// The container has ended, or the host's devices have changed in the meantime. Such a change
    /// starts another pass.
    Outdated,
    /// The container is being started: its first process does not have the container's root yet.
    Starting,
}

pub(super) struct UpdatePass<'a> {
    pub(super) state: &'a mut FollowerState,
    /// The time since `boathook follow` started, in seconds.
    pub(super) elapsed_seconds: u64,
    /// The time in seconds after which a failed change of a container is retried.
    pub(super) retry_seconds: u64,
    /// The key of the state digests. It is the same for all passes.
    pub(super) digest_key: &'a RandomState,
    pub(super) config: &'a Config,
}

/// A container and the child process that is changing it.
struct ContainerUpdate<'r> {
    record: &'r AttachmentRecord,
    /// The digest of the container's state, which is stored if the change succeeds.
    new_digest: Option<StateDigest>,
    child: Child,
}

impl UpdatePass<'_> {
    /// Revokes stale rules in all containers. Then replaces the devices of each container whose
    /// state has changed, in a separate child process for each container.
    pub(super) fn run(mut self) {
        let config = self.config;
        let stored = record_files::read_stored_records(&config.host_root);
        for error in stored.errors.difference(&self.state.record_errors) {
            log::warning(error);
        }
        self.state.record_errors = stored.errors;
        self.state.needs_another_pass = false;
        self.state.has_starting_container = false;
        let snapshot = self.take_snapshot(&stored.records);
        let records = stored
            .records
            .iter()
            .map(|record| copy_with_present_devices(record, &snapshot));
        let records: Vec<AttachmentRecord> = records.collect();
        // The stale rules of all containers are revoked first, because after that any container can
        // delay this process.
        let removed_devices: Vec<RemovedDevices> = records
            .iter()
            .map(|record| find_removed_devices(record, &snapshot, &config.host_root))
            .collect();
        let containers = records.iter().zip(&removed_devices);
        revoke_stale_rules_without_lock(containers, &snapshot, &config.host_root);
        let mut failed_revocations = Vec::new();
        let mut revoked_records = Vec::new();
        for (record, removed_devices) in records.iter().zip(removed_devices) {
            match revoke_stale_rules(
                record,
                &removed_devices,
                &snapshot,
                lock::FOLLOW_LOCK_TIMEOUT,
                config,
            ) {
                Ok(has_revoked_rule) => {
                    revoked_records.push((record, removed_devices, has_revoked_rule))
                }
                Err(_) => failed_revocations.push((record, removed_devices)),
            }
        }
        let mut updates = Vec::new();
        let mut changed_containers = Vec::new();
        for (record, removed_devices, has_revoked_rule) in revoked_records {
            if has_revoked_rule {
                // Since the snapshot, the device of the rule may have been removed and plugged in
                // again. Then the new state equals the stored state, although the rule is missing.
                // So the stored digest is removed.
                self.state.digests.remove(&record.id);
            }
            let followed_devices = snapshot.list_followed_devices(record);
            let new_digest =
                to_container_state(record, &followed_devices, &removed_devices, &snapshot)
                    .to_digest(self.digest_key);
            if followed_devices.is_empty() && removed_devices.is_empty() {
                self.state.failures.remove(&record.id);
                if !record.awaited_requests.is_empty() {
                    self.state.digests.insert(record.id.clone(), new_digest);
                }
                continue;
            }
            if !self.needs_update(&record.id, new_digest) {
                continue;
            }
            while updates.len() == MAX_CHILD_PROCESSES {
                self.collect_ended_children(&mut updates, &mut changed_containers);
            }
            let start_attempts = self.state.start_attempts.get(&record.id);
            let may_be_starting = start_attempts.is_none_or(|count| *count < MAX_START_ATTEMPTS);
            let work = || {
                let result = change_container(
                    record,
                    &followed_devices,
                    &removed_devices,
                    &snapshot,
                    may_be_starting,
                    config,
                );
                let result = result.map(|outcome| match outcome {
                    ContainerOutcome::Unchanged if has_revoked_rule => ContainerOutcome::Changed,
                    outcome => outcome,
                });
                let result = result.map_err(|error| log::format_error_chain(&error));
                serde_json::to_string(&result).unwrap_or_default()
            };
            match sys::process::start_child(deadline::CHILD_TIMEOUT, work) {
                Ok(child) => updates.push(ContainerUpdate {
                    record,
                    new_digest,
                    child,
                }),
                Err(errno) => {
                    changed_containers.extend(self.apply_answer(record, new_digest, Err(errno)))
                }
            }
        }
        while !updates.is_empty() {
            self.collect_ended_children(&mut updates, &mut changed_containers);
        }
        // The revocation is retried, because another process may have held the locks of these
        // containers, or may have revoked the same rules at the same time. The device nodes are
        // replaced in the next pass, because the snapshot may be outdated by now.
        for (record, removed_devices) in failed_revocations {
            match revoke_stale_rules(
                record,
                &removed_devices,
                &snapshot,
                lock::FOLLOW_LOCK_TIMEOUT,
                config,
            ) {
                Ok(_) => {
                    self.state.digests.remove(&record.id);
                    self.state.failures.remove(&record.id);
                    self.state.needs_another_pass = true;
                }
                Err(error) => self.record_failure(&record.id, log::format_error_chain(&error)),
            }
        }
        announce_changes(&changed_containers, &snapshot, config);
        let is_running = |id: &String| records.iter().any(|record| record.id == *id);
        self.state.digests.retain(|id, _| is_running(id));
        self.state.failures.retain(|id, _| is_running(id));
        self.state.start_attempts.retain(|id, _| is_running(id));
        if stored.has_ended_container {
            record_files::prune_records(&config.host_root);
        }
    }

    /// Looks up on the host the devices of all classes that the containers use. Logs a warning for
    /// each class that cannot be used, but only once.
    fn take_snapshot(&mut self, records: &[AttachmentRecord]) -> HostSnapshot {
        let deadline = Deadline::start(deadline::DEADLINE_SECONDS);
        Stage::Planning.begin();
        let mut snapshot = HostSnapshot::take(records, self.config);
        if let Ok(deadline) = deadline {
            deadline.cancel();
        }
        let unusable_classes = mem::take(&mut snapshot.unusable_classes);
        for (class, reason) in &unusable_classes {
            if self.state.unusable_classes.get(class) != Some(reason) {
                log::warning(&format!(
                    "class {class}: containers get none of its devices again, and lose those \
                     that are unplugged: {reason}"
                ));
            }
        }
        self.state.unusable_classes = unusable_classes;
        snapshot
    }

    /// Reports whether a container must be changed now. This is the case if its state differs from
    /// its state after the last change, and the pause after the last failure has passed.
    fn needs_update(&self, id: &str, new_digest: Option<StateDigest>) -> bool {
        let last_digest = self.state.digests.get(id).copied().flatten();
        let is_changed = last_digest.is_none() || last_digest != new_digest;
        let last_failure = self.state.failures.get(id);
        let is_paused = last_failure.is_some_and(|(failure_time, _)| {
            self.elapsed_seconds.saturating_sub(*failure_time) < self.retry_seconds
        });
        is_changed && !is_paused
    }

    /// Waits a few milliseconds. Then stores the answers of the child processes that have ended.
    fn collect_ended_children<'r>(
        &mut self,
        updates: &mut Vec<ContainerUpdate<'r>>,
        changed_containers: &mut Vec<ChangedContainer<'r>>,
    ) {
        for mut update in mem::take(updates) {
            let answer = match update.child.poll() {
                Ok(None) => {
                    updates.push(update);
                    continue;
                }
                Ok(Some(answer)) => Ok(answer),
                Err(errno) => Err(errno),
            };
            let ContainerUpdate {
                record, new_digest, ..
            } = update;
            changed_containers.extend(self.apply_answer(record, new_digest, answer));
        }
    }

    /// Stores the answer of the child process that changed one container. Returns the container and
    /// its change. Returns `None` after an error, or if the container must be examined again.
    fn apply_answer<'r>(
        &mut self,
        record: &'r AttachmentRecord,
        new_digest: Option<StateDigest>,
        answer: Result<Option<String>, Errno>,
    ) -> Option<ChangedContainer<'r>> {
        let error = match answer {
            Ok(Some(answer)) => match serde_json::from_str(&answer) {
                Ok(Ok(outcome)) => return self.apply_outcome(record, new_digest, outcome),
                Ok(Err(error)) => error,
                Err(error) => error.to_string(),
            },
            Ok(None) => ContainerChangeError::Timeout.to_string(),
            Err(errno) => log::format_error_chain(&ContainerChangeError::Fork(errno)),
        };
        self.record_failure(&record.id, error);
        None
    }

    fn apply_outcome<'r>(
        &mut self,
        record: &'r AttachmentRecord,
        new_digest: Option<StateDigest>,
        outcome: ContainerOutcome,
    ) -> Option<ChangedContainer<'r>> {
        let change = match outcome {
            ContainerOutcome::Changed => DeviceChange::Replaced,
            ContainerOutcome::Unchanged => DeviceChange::Unchanged,
            ContainerOutcome::Outdated | ContainerOutcome::Starting => {
                self.state.digests.remove(&record.id);
                self.state.failures.remove(&record.id);
                if outcome == ContainerOutcome::Starting {
                    let attempts = self.state.start_attempts.entry(record.id.clone());
                    *attempts.or_default() += 1;
                    self.state.has_starting_container = true;
                }
                return None;
            }
        };
        self.state.digests.insert(record.id.clone(), new_digest);
        self.state.failures.remove(&record.id);
        self.state.start_attempts.remove(&record.id);
        Some((record, change))
    }

    /// Stores the error of a container that could not be changed. The change is retried after a
    /// pause even if no device changes, because the change may be incomplete.
    fn record_failure(&mut self, id: &str, error: String) {
        let last_failure = self.state.failures.get(id);
        if last_failure.is_none_or(|(_, last_error)| *last_error != error) {
            log::warning(&format!("container {id}: {error}"));
        }
        self.state.digests.remove(id);
        // A container that is still being started has the outcome `Starting`, and not an error. So
        // after an error, it no longer counts as starting.
        if let Some(attempts) = self.state.start_attempts.get_mut(id) {
            *attempts = MAX_START_ATTEMPTS;
        }
        self.state
            .failures
            .insert(id.to_owned(), (self.elapsed_seconds, error));
    }
}

fn to_container_state(
    record: &AttachmentRecord,
    followed_devices: &[FollowedDevice<'_>],
    removed_devices: &RemovedDevices,
    snapshot: &HostSnapshot,
) -> ContainerState {
    let announcements = record.devices.iter().map(|device| {
        let announcements = snapshot.find_announcements(device);
        announcements.map(<[_]>::to_vec)
    });
    let followed_devices = followed_devices.iter().map(|followed_device| {
        (
            followed_device.device.device_ref(),
            followed_device.host_device.clone(),
        )
    });
    ContainerState {
        start_time: record.start_time,
        followed_devices: followed_devices.collect(),
        class_nodes: snapshot.list_class_nodes(record),
        announcements: announcements.collect(),
        removed_devices: removed_devices.clone(),
        rules: record.rules.clone(),
    }
}

/// Replaces the followed devices of one container and removes the nodes of removed devices. If
/// `may_be_starting` is true, it is no error that the first process does not have the container's
/// root yet.
fn change_container(
    record: &AttachmentRecord,
    followed_devices: &[FollowedDevice<'_>],
    removed_devices: &RemovedDevices,
    snapshot: &HostSnapshot,
    may_be_starting: bool,
    config: &Config,
) -> Result<ContainerOutcome, ContainerChangeError> {
    let replacement = if followed_devices.is_empty() {
        Ok(false)
    } else {
        replace_devices(
            record,
            followed_devices,
            snapshot,
            lock::FOLLOW_LOCK_TIMEOUT,
            config,
        )
    };
    // `replace_devices` removes the old nodes of the devices, unless it fails or the class cannot
    // be used. The nodes that it did not remove are removed here.
    let is_not_replaced = |removed_device: &&DeviceRef| {
        let mut devices = followed_devices
            .iter()
            .map(|followed_device| followed_device.device);
        replacement.is_err() || !devices.any(|device| device.device_ref() == **removed_device)
    };
    let remaining_devices: RemovedDevices = removed_devices
        .iter()
        .filter(is_not_replaced)
        .cloned()
        .collect();
    let node_removal = remove_nodes(record, &remaining_devices, config);
    let has_changed_again = || {
        let new_snapshot = HostSnapshot::take(slice::from_ref(record), config);
        new_snapshot.list_followed_devices(record) != followed_devices
    };
    match replacement.and_then(|was_changed| node_removal.map(|()| was_changed)) {
        Ok(true) => Ok(ContainerOutcome::Changed),
        Ok(false) => Ok(ContainerOutcome::Unchanged),
        Err(ContainerChangeError::ContainerEnded) => Ok(ContainerOutcome::Outdated),
        Err(ContainerChangeError::Container(container::Error::UnexpectedProcessRoot {
            ..
        })) if may_be_starting => Ok(ContainerOutcome::Starting),
        Err(_) if has_changed_again() => Ok(ContainerOutcome::Outdated),
        Err(error) => Err(error),
    }
}

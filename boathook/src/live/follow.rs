//! `boathook follow`: updates running containers when devices come and go. If a device is plugged
//! in again with another device number, its new node replaces the old one in each container that
//! has the device. If a device is unplugged, it is removed from the containers. If a container
//! requested a device that the host did not have, the container gets the device when it arrives.
//!
//! Each pass compares the attachment records with the devices of the host, so the first pass also
//! finds the changes from the time before `boathook follow` was started.

mod rate_limit;
mod restore_rules;
mod state;
mod update_pass;

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::mem;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::slice;
use std::time::{Duration, Instant};

use device_class::config::Config;
use hook::attachment::{AttachmentRecord, lock, record_files};
use hook::log;
use hook::sys;
use hook::sys::deadline::{self, Deadline};
use hook::sys::process::Child;
use hook::sys::uevent::UeventReceiver;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::live::ContainerChangeError;
use crate::live::announce::{DeviceChange, announce_devices};
use crate::live::reconcile::{
    HostSnapshot, RemovedDevices, copy_with_present_devices, find_removed_devices, replace_devices,
    revoke_stale_rules, revoke_stale_rules_without_lock,
};
use rate_limit::RateLimit;
use restore_rules::{CgroupWatch, ContainersWithEvents};
use state::FollowerState;
use update_pass::UpdatePass;

/// The time after which a container that is still being started is examined again.
const START_RETRY_TIME: Duration = Duration::from_millis(100);

/// Updates the devices of one container once, as [`Follower`] does for all containers. `attach`
/// calls this function, because devices may have got other device numbers while `boathook follow`
/// was not running.
pub(crate) fn update_container(
    container: &str,
    config: &Config,
) -> Result<(), ContainerChangeError> {
    let records = record_files::read_records(&config.host_root);
    let Some(record) = records.iter().find(|record| record.id == container) else {
        return Ok(());
    };
    let snapshot = HostSnapshot::take(slice::from_ref(record), config);
    let record = &copy_with_present_devices(record, &snapshot);
    let removed_devices = find_removed_devices(record, &snapshot, &config.host_root);
    let lock_timeout = lock::COMMAND_LOCK_TIMEOUT;
    let was_revoked =
        revoke_stale_rules(record, &removed_devices, &snapshot, lock_timeout, config)?;
    let followed_devices = snapshot.list_followed_devices(record);
    let was_replaced = !followed_devices.is_empty()
        && replace_devices(record, &followed_devices, &snapshot, lock_timeout, config)?;
    if was_revoked || was_replaced {
        announce_devices(record, DeviceChange::Replaced, config);
    }
    Ok(())
}

/// The state of a running `boathook follow`. It waits for events of devices and of containers'
/// cgroups, and then updates the containers.
pub(crate) struct Follower<'c> {
    config: &'c Config,
    device_events: UeventReceiver,
    cgroup_events: CgroupWatch,
    /// The errors of the containers whose rules could not be restored, by container id.
    container_errors: BTreeMap<String, String>,
    /// The reason why the rules could not be restored in any container.
    restore_error: Option<String>,
    /// The containers that inotify reported, but whose rules could not be restored because of
    /// `restore_error`.
    pending_containers: ContainersWithEvents,
    /// The error of the last pass, if no container could be updated in it.
    pass_error: Option<String>,
    /// Limits how often the events of devices start a pass, because somebody may plug a device in
    /// and unplug it endlessly.
    device_event_rate_limit: RateLimit,
    /// Limits how often the events of cgroups start a pass, because a container can cause such
    /// events when it writes to the files of its cgroup.
    cgroup_event_rate_limit: RateLimit,
    /// The time of the next pass if no event causes an earlier one.
    next_pass_time: Option<Instant>,
    /// The time in seconds after which a failed change of a container is retried.
    retry_seconds: NonZeroU32,
    start_time: Instant,
    state: FollowerState,
    /// The random key for the digests in `state`. A container that does not know the key cannot
    /// compute a digest.
    digest_key: RandomState,
    /// The child process of a pass, if the child process exceeded its time limit and could not be
    /// killed.
    hanging_child: Option<Child>,
}

impl<'c> Follower<'c> {
    pub(crate) fn new(
        retry_seconds: NonZeroU32,
        device_events: UeventReceiver,
        config: &'c Config,
    ) -> Result<Self, ContainerChangeError> {
        Ok(Follower {
            config,
            device_events,
            cgroup_events: CgroupWatch::open().map_err(ContainerChangeError::CgroupWatch)?,
            container_errors: BTreeMap::new(),
            restore_error: None,
            pending_containers: ContainersWithEvents::default(),
            pass_error: None,
            device_event_rate_limit: RateLimit::new(),
            cgroup_event_rate_limit: RateLimit::new(),
            next_pass_time: None,
            retry_seconds,
            start_time: Instant::now(),
            state: FollowerState::default(),
            digest_key: RandomState::new(),
            hanging_child: None,
        })
    }

    /// Updates all containers once, without waiting for an event.
    pub(crate) fn update_all_containers(&mut self) {
        self.restore_rules(ContainersWithEvents::default());
        self.update_changed_containers();
    }

    /// Waits for an event, or for the time of the next pass. Then updates the containers.
    pub(crate) fn wait_and_update(&mut self) -> Result<(), Errno> {
        self.wait_for_event()?;
        let is_pass_due = self
            .next_pass_time
            .is_some_and(|time| time <= Instant::now());
        let may_update = self.device_event_rate_limit.compute_wait_time().is_none();
        let has_events = may_update && self.device_events.receive_pending()?;
        if has_events {
            self.device_event_rate_limit.count_run();
        }
        if has_events || is_pass_due {
            self.update_changed_containers();
        }
        if self.cgroup_event_rate_limit.compute_wait_time().is_none() {
            let mut containers_with_events = self.cgroup_events.read_events()?;
            // A new container may wait for a device that arrived before the container's record was
            // written. No later event reports this device, so the containers are updated now.
            if self.has_awaited_requests(&containers_with_events) {
                self.update_changed_containers();
            }
            if is_pass_due {
                let failed_ids = self.container_errors.keys().cloned();
                containers_with_events.updated_ids.extend(failed_ids);
                containers_with_events.extend(mem::take(&mut self.pending_containers));
            }
            self.restore_rules(containers_with_events);
        }
        Ok(())
    }

    fn has_awaited_requests(&self, containers_with_events: &ContainersWithEvents) -> bool {
        if containers_with_events.new_ids.is_empty() {
            return false;
        }
        let records = record_files::read_records(&self.config.host_root);
        let mut records = records.iter();
        records.any(|record| {
            !record.awaited_requests.is_empty()
                && containers_with_events.new_ids.contains(&record.id)
        })
    }

    fn wait_for_event(&self) -> Result<(), Errno> {
        let mut poll_fds = Vec::new();
        let time_left = |next: Instant| next.saturating_duration_since(Instant::now());
        let mut wait_times: Vec<Duration> =
            self.next_pass_time.map(time_left).into_iter().collect();
        let sources = [
            (self.device_events.as_fd(), &self.device_event_rate_limit),
            (self.cgroup_events.as_fd(), &self.cgroup_event_rate_limit),
        ];
        for (source, rate_limit) in sources {
            match rate_limit.compute_wait_time() {
                Some(wait_time) => wait_times.push(wait_time),
                None => poll_fds.push(PollFd::new(source, PollFlags::POLLIN)),
            }
        }
        // The timeout of poll(2) is in milliseconds. The wait time is rounded up, so that poll(2)
        // does not return too early.
        let timeout = wait_times
            .into_iter()
            .min()
            .map_or(PollTimeout::NONE, |wait_time| {
                let millis = (wait_time + Duration::from_micros(999)).as_millis();
                PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
            });
        match poll(&mut poll_fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Updates the containers whose devices have changed. A child process does this work, so that
    /// the memory of this process does not grow.
    fn update_changed_containers(&mut self) {
        self.next_pass_time = None;
        let stored = record_files::read_stored_records(&self.config.host_root);
        let record_count = stored.records.len();
        let has_container_state = !self.state.digests.is_empty() || !self.state.failures.is_empty();
        let has_stale_content = has_container_state || stored.has_ended_container;
        if record_count == 0 && stored.errors == self.state.record_errors && !has_stale_content {
            return;
        }
        if self.hanging_child.as_ref().is_some_and(Child::exists) {
            self.revoke_all_stale_rules(record_count);
            self.next_pass_time = Some(self.compute_retry_time());
            return;
        }
        let child = sys::process::start_child(compute_time_limit(record_count), || {
            let mut state = mem::take(&mut self.state);
            let pass = UpdatePass {
                state: &mut state,
                elapsed_seconds: self.start_time.elapsed().as_secs(),
                retry_seconds: self.retry_seconds.get().into(),
                digest_key: &self.digest_key,
                config: self.config,
            };
            pass.run();
            state.to_text()
        });
        let mut has_new_events = false;
        let answer = child.and_then(|mut child| {
            let answer = loop {
                match child.poll() {
                    Ok(None) => {}
                    answer => break answer.map(Option::flatten),
                }
                // A container can delay the child process. Rules in the other containers must be
                // revoked without this delay, so this process revokes them while it waits.
                let may_revoke = self.device_event_rate_limit.compute_wait_time().is_none();
                if may_revoke && self.device_events.receive_pending().unwrap_or_default() {
                    self.device_event_rate_limit.count_run();
                    self.revoke_all_stale_rules(record_count);
                    has_new_events = true;
                }
            };
            let has_answered = matches!(answer, Ok(Some(_)));
            self.hanging_child = (!has_answered).then_some(child);
            answer
        });
        let new_state = answer.map(|text| text.and_then(|text| FollowerState::parse(&text)));
        let message = match new_state {
            Ok(Some(state)) => {
                self.state = state;
                None
            }
            Ok(None) => Some("the look at them did not end in time".to_owned()),
            Err(errno) => Some(log::format_error_chain(&ContainerChangeError::Fork(errno))),
        };
        if let Some(message) = message.as_ref().filter(|_| message != self.pass_error) {
            log::warning(&format!(
                "containers do not get the devices that come and go: {message}"
            ));
        }
        self.pass_error = message;
        let needs_another_pass = self.pass_error.is_none() && self.state.needs_another_pass;
        if has_new_events {
            self.next_pass_time = Some(Instant::now());
        } else if needs_another_pass {
            // A device that is plugged in and unplugged endlessly can require another pass each
            // time. So this pass is counted in the rate limit of device events.
            let wait_time = self.device_event_rate_limit.compute_wait_time();
            self.next_pass_time = Some(Instant::now() + wait_time.unwrap_or_default());
            self.device_event_rate_limit.count_run();
        } else if self.pass_error.is_none() && self.state.has_starting_container {
            self.next_pass_time = Some(Instant::now() + START_RETRY_TIME);
        } else if self.pass_error.is_some() || !self.state.failures.is_empty() {
            self.next_pass_time = Some(self.compute_retry_time());
        }
    }

    /// Revokes the rules for devices that the host does not have, in all containers. Ignores
    /// errors, because the next pass reports them.
    fn revoke_all_stale_rules(&self, container_count: usize) {
        let config = self.config;
        let child = sys::process::start_child(compute_time_limit(container_count), || {
            let deadline = Deadline::start(deadline::DEADLINE_SECONDS);
            let records = record_files::read_records(&config.host_root);
            let snapshot = HostSnapshot::take(&records, config);
            // A container may have requested one device by several names. If the recorded name now
            // leads to another device, but one of the other names still leads to this device, it
            // keeps its rules.
            let records = records.iter();
            let records = records.map(|record| copy_with_present_devices(record, &snapshot));
            let containers: Vec<(AttachmentRecord, RemovedDevices)> = records
                .map(|record| {
                    let devices = find_removed_devices(&record, &snapshot, &config.host_root);
                    (record, devices)
                })
                .collect();
            let references = containers.iter().map(|(record, devices)| (record, devices));
            revoke_stale_rules_without_lock(references, &snapshot, &config.host_root);
            // From here on each container has a deadline of its own, because another process may
            // hold the lock of a container.
            let _ = deadline.map(Deadline::cancel);
            for (record, removed_devices) in &containers {
                let deadline = Deadline::start(deadline::DEADLINE_SECONDS);
                let _ = revoke_stale_rules(
                    record,
                    removed_devices,
                    &snapshot,
                    lock::FOLLOW_LOCK_TIMEOUT,
                    config,
                );
                let _ = deadline.map(Deadline::cancel);
            }
            String::new()
        });
        let _ = child.and_then(|mut child| child.wait());
    }

    fn compute_retry_time(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.retry_seconds.get().into())
    }

    /// Restores the rules that the reported containers have lost. Begins to watch the new
    /// containers.
    fn restore_rules(&mut self, mut containers_with_events: ContainersWithEvents) {
        let error = self.try_restore_rules(&mut containers_with_events).err();
        if error.is_some() {
            self.pending_containers.extend(containers_with_events);
        }
        let message = error.map(|error| log::format_error_chain(&error));
        if let Some(message) = message.as_ref().filter(|_| message != self.restore_error) {
            log::warning(&format!(
                "devices that containers lose by updates are not given back: {message}"
            ));
        }
        self.restore_error = message;
        if self.restore_error.is_some() || !self.container_errors.is_empty() {
            self.next_pass_time.get_or_insert(self.compute_retry_time());
        }
    }

    /// Does the work of [`Self::restore_rules`]. Logs an error that concerns a single container.
    /// Returns only errors that concern all containers.
    fn try_restore_rules(
        &mut self,
        containers_with_events: &mut ContainersWithEvents,
    ) -> Result<(), ContainerChangeError> {
        if self.cgroup_events.watch_records(&self.config.host_root)? {
            let records = record_files::read_records(&self.config.host_root).into_iter();
            containers_with_events
                .new_ids
                .extend(records.map(|record| record.id));
        }
        if containers_with_events.new_ids.is_empty()
            && containers_with_events.updated_ids.is_empty()
        {
            return Ok(());
        }
        self.cgroup_event_rate_limit.count_run();
        let mut watch_result = Ok(());
        if !containers_with_events.new_ids.is_empty() {
            let find_directories = || {
                restore_rules::find_cgroup_directories(&containers_with_events.new_ids, self.config)
            };
            for (id, directories) in
                run_in_child(containers_with_events.new_ids.len(), find_directories)?
            {
                watch_result =
                    watch_result.and(self.cgroup_events.watch_cgroups(&id, &directories));
                containers_with_events.updated_ids.insert(id);
            }
        }
        let restore =
            || restore_rules::restore_rules(&containers_with_events.updated_ids, self.config);
        let container_errors = run_in_child(containers_with_events.updated_ids.len(), restore)?;
        for (id, error) in &container_errors {
            if self.container_errors.get(id) != Some(error) {
                log::warning(&format!("container {id}: {error}"));
            }
        }
        let events = &self.cgroup_events;
        self.container_errors.retain(|id, _| {
            !containers_with_events.updated_ids.contains(id) && events.is_container_watched(id)
        });
        self.container_errors.extend(container_errors);
        watch_result
    }
}

/// Runs `work` in a child process and returns its results, with the container ids as keys. The time
/// limit grows with `container_count`, because each container can delay the child process.
fn run_in_child<T>(
    container_count: usize,
    work: impl FnOnce() -> BTreeMap<String, T>,
) -> Result<BTreeMap<String, T>, ContainerChangeError>
where
    T: Serialize + DeserializeOwned,
{
    let work = || serde_json::to_string(&work()).unwrap_or_default();
    let answer = sys::process::run_in_child(compute_time_limit(container_count), work)
        .map_err(ContainerChangeError::Fork)?;
    let results = answer.and_then(|text| serde_json::from_str(&text).ok());
    results.ok_or(ContainerChangeError::Timeout)
}

/// Returns the time limit of a child process that handles `container_count` containers. Each of
/// them may delay the child process by [`deadline::CHILD_TIMEOUT`].
fn compute_time_limit(container_count: usize) -> Duration {
    let container_count = u32::try_from(container_count).unwrap_or(u32::MAX);
    deadline::CHILD_TIMEOUT * container_count.saturating_add(4)
}

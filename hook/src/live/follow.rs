//! `boathook follow`: keeps containers up to date while devices come and go. A device that is
//! plugged in again with another number replaces the old one in each container that has it, and
//! one that is unplugged is removed. A device that a container waits for is given when it comes.
//!
//! Each pass compares the attachment records, which have the devices of the containers, with the
//! devices that the host has. Therefore a change that happens while this program does not run is
//! found by its first pass.

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
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::live::LiveError;
use crate::live::announce::{DeviceChange, announce_devices};
use crate::live::container::{lock, record_files};
use crate::live::reconcile::{HostSnapshot, find_removed, replace_devices, revoke_stale};
use crate::log;
use crate::sys;
use crate::sys::deadline::{self, Deadline};
use crate::sys::process::Child;
use crate::sys::uevent::Uevents;
use rate_limit::RateLimit;
use restore_rules::{CgroupWatch, ReportedContainers};
use state::FollowerState;
use update_pass::UpdatePass;

/// Updates the devices of one container as [`Follower`] does. They may have come back with other
/// device numbers while no follower ran.
pub(crate) fn catch_up(container: &str, config: &Config) -> Result<(), LiveError> {
    let records = record_files::read_records(&config.host_root);
    let Some(record) = records.iter().find(|record| record.id == container) else {
        return Ok(());
    };
    let snapshot = HostSnapshot::take(slice::from_ref(record), config);
    let record = &record.with_arrivals(&snapshot);
    let removed = find_removed(record, &snapshot, &config.host_root);
    let limit = lock::COMMAND_LIMIT;
    let was_revoked = revoke_stale(record, &removed, &snapshot, limit, config)?;
    let followed = snapshot.list_followed_devices(record);
    let was_replaced =
        !followed.is_empty() && replace_devices(record, &followed, &snapshot, limit, config)?;
    if was_revoked || was_replaced {
        announce_devices(record, DeviceChange::Replaced, config);
    }
    Ok(())
}

/// Waits for events of devices and of containers' cgroups, and updates the containers.
pub(crate) struct Follower<'c> {
    config: &'c Config,
    device_events: Uevents,
    cgroup_events: CgroupWatch,
    /// The errors of containers whose rules could not be restored, by container id.
    container_errors: BTreeMap<String, String>,
    /// The error because of which no container's rules could be restored.
    restore_error: Option<String>,
    /// The reported containers whose rules were not restored because of `restore_error`.
    pending_containers: ReportedContainers,
    /// The error of the last pass, if it failed for all containers.
    pass_error: Option<String>,
    /// The limit for passes because of device events, because a device may come and go without end.
    device_limit: RateLimit,
    /// The limit for passes because of cgroup events, because a container may be able to write to the
    /// files of its cgroup.
    cgroup_limit: RateLimit,
    /// The time of the next pass if no event comes before.
    next_pass: Option<Instant>,
    /// The time in seconds after which a failed change of a container is retried.
    pause: NonZeroU32,
    start_time: Instant,
    state: FollowerState,
    /// The key of the digests in `state`.
    digest_key: RandomState,
    /// The child process of a pass that did not end in time and could not be killed.
    hanging_child: Option<Child>,
}

impl<'c> Follower<'c> {
    pub(crate) fn new(
        pause: NonZeroU32,
        device_events: Uevents,
        config: &'c Config,
    ) -> Result<Self, LiveError> {
        Ok(Follower {
            config,
            device_events,
            cgroup_events: CgroupWatch::open().map_err(LiveError::CgroupWatch)?,
            container_errors: BTreeMap::new(),
            restore_error: None,
            pending_containers: ReportedContainers::default(),
            pass_error: None,
            device_limit: RateLimit::new(),
            cgroup_limit: RateLimit::new(),
            next_pass: None,
            pause,
            start_time: Instant::now(),
            state: FollowerState::default(),
            digest_key: RandomState::new(),
            hanging_child: None,
        })
    }

    /// Updates all containers once, without waiting for an event.
    pub(crate) fn update_all(&mut self) {
        self.restore_rules(ReportedContainers::default());
        self.update_changed();
    }

    /// Waits for an event or for the time of the next pass, and updates the containers.
    pub(crate) fn wait_and_update(&mut self) -> Result<(), Errno> {
        self.wait_for_event()?;
        let is_time = self.next_pass.is_some_and(|next| next <= Instant::now());
        let may_update = self.device_limit.wait_time().is_none();
        if is_time || may_update && self.device_events.take()? {
            self.device_limit.count_run();
            self.update_changed();
        }
        if self.cgroup_limit.wait_time().is_none() {
            let mut reported = self.cgroup_events.read_events()?;
            // The device may have come while the container was started, before its record was
            // written.
            if self.has_awaited_requests(&reported) {
                self.update_changed();
            }
            if is_time {
                let failed = self.container_errors.keys().cloned();
                reported.updated.extend(failed);
                reported.extend(mem::take(&mut self.pending_containers));
            }
            self.restore_rules(reported);
        }
        Ok(())
    }

    fn has_awaited_requests(&self, reported: &ReportedContainers) -> bool {
        if reported.new.is_empty() {
            return false;
        }
        let records = record_files::read_records(&self.config.host_root);
        let mut records = records.iter();
        records
            .any(|record| !record.awaited_requests.is_empty() && reported.new.contains(&record.id))
    }

    fn wait_for_event(&self) -> Result<(), Errno> {
        let mut watched = Vec::new();
        let time_left = |next: Instant| next.saturating_duration_since(Instant::now());
        let mut waits: Vec<Duration> = self.next_pass.map(time_left).into_iter().collect();
        let sources = [
            (self.device_events.as_fd(), &self.device_limit),
            (self.cgroup_events.as_fd(), &self.cgroup_limit),
        ];
        for (source, limit) in sources {
            match limit.wait_time() {
                Some(wait) => waits.push(wait),
                None => watched.push(PollFd::new(source, PollFlags::POLLIN)),
            }
        }
        // poll(2) counts in milliseconds. The time is rounded up, so that it does not return
        // before the time has come.
        let timeout = waits.into_iter().min().map_or(PollTimeout::NONE, |wait| {
            let millis = (wait + Duration::from_micros(999)).as_millis();
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Updates the containers whose devices have changed. A child process does this, so that the
    /// memory of this process does not grow.
    fn update_changed(&mut self) {
        self.next_pass = None;
        let (records, unreadable) = record_files::read_records_and_errors(&self.config.host_root);
        let records = records.len();
        let has_container_state =
            !self.state.containers.is_empty() || !self.state.failures.is_empty();
        if records == 0 && unreadable == self.state.unreadable_records && !has_container_state {
            return;
        }
        if self.hanging_child.as_ref().is_some_and(Child::exists) {
            self.revoke_stale_rules(records);
            self.next_pass = Some(self.time_after_pause());
            return;
        }
        let child = sys::process::start_child(compute_time_limit(records), || {
            let mut state = mem::take(&mut self.state);
            let pass = UpdatePass {
                state: &mut state,
                now: self.start_time.elapsed().as_secs(),
                pause: self.pause.get().into(),
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
                // A container may keep the child waiting. That must not delay the revocation of
                // rules in other containers.
                let may_revoke = self.device_limit.wait_time().is_none();
                if may_revoke && self.device_events.take().unwrap_or_default() {
                    self.device_limit.count_run();
                    self.revoke_stale_rules(records);
                    has_new_events = true;
                }
            };
            let has_answered = matches!(answer, Ok(Some(_)));
            self.hanging_child = (!has_answered).then_some(child);
            answer
        });
        let answer = answer.map(|text| text.and_then(|text| FollowerState::parse(&text)));
        let error = match answer {
            Ok(Some(state)) => {
                self.state = state;
                None
            }
            Ok(None) => Some("the look at them did not end in time".to_owned()),
            Err(errno) => Some(log::chain(&LiveError::Fork(errno))),
        };
        if let Some(error) = error.as_ref().filter(|_| error != self.pass_error) {
            log::warning(&format!(
                "containers do not get the devices that come and go: {error}"
            ));
        }
        self.pass_error = error;
        if has_new_events {
            self.next_pass = Some(Instant::now());
        } else if self.pass_error.is_some() || !self.state.failures.is_empty() {
            self.next_pass = Some(self.time_after_pause());
        }
    }

    /// Revokes the rules of devices that the host does not have, and changes nothing else. Errors are
    /// reported by the next pass.
    fn revoke_stale_rules(&self, containers: usize) {
        let config = self.config;
        let child = sys::process::start_child(compute_time_limit(containers), || {
            let deadline = Deadline::start(deadline::SECONDS);
            let records = record_files::read_records(&config.host_root);
            let snapshot = HostSnapshot::take(&records, config);
            // Each container has its own deadline, because another process may have its lock.
            let _ = deadline.map(Deadline::cancel);
            for record in &records {
                let deadline = Deadline::start(deadline::SECONDS);
                let removed = find_removed(record, &snapshot, &config.host_root);
                let _ = revoke_stale(record, &removed, &snapshot, lock::FOLLOW_LIMIT, config);
                let _ = deadline.map(Deadline::cancel);
            }
            String::new()
        });
        let _ = child.and_then(|mut child| child.wait());
    }

    fn time_after_pause(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.pause.get().into())
    }

    /// Restores the rules that the reported containers have lost, and watches the new containers.
    fn restore_rules(&mut self, mut reported: ReportedContainers) {
        let error = self.try_restore_rules(&mut reported).err();
        if error.is_some() {
            self.pending_containers.extend(reported);
        }
        let error = error.map(|error| log::chain(&error));
        if let Some(error) = error.as_ref().filter(|_| error != self.restore_error) {
            log::warning(&format!(
                "devices that containers lose by updates are not given back: {error}"
            ));
        }
        self.restore_error = error;
        if self.restore_error.is_some() || !self.container_errors.is_empty() {
            self.next_pass.get_or_insert(self.time_after_pause());
        }
    }

    fn try_restore_rules(&mut self, reported: &mut ReportedContainers) -> Result<(), LiveError> {
        if self.cgroup_events.watch_records(&self.config.host_root)? {
            let records = record_files::read_records(&self.config.host_root).into_iter();
            reported.new.extend(records.map(|record| record.id));
        }
        if reported.new.is_empty() && reported.updated.is_empty() {
            return Ok(());
        }
        self.cgroup_limit.count_run();
        let mut watched = Ok(());
        if !reported.new.is_empty() {
            let find = || restore_rules::find_cgroup_directories(&reported.new, self.config);
            for (id, directories) in run_in_child(reported.new.len(), find)? {
                watched = watched.and(self.cgroup_events.watch_cgroups(&id, &directories));
                reported.updated.insert(id);
            }
        }
        let restore = || restore_rules::restore_rules(&reported.updated, self.config);
        let failed = run_in_child(reported.updated.len(), restore)?;
        for (id, error) in &failed {
            if self.container_errors.get(id) != Some(error) {
                log::warning(&format!("container {id}: {error}"));
            }
        }
        let events = &self.cgroup_events;
        self.container_errors
            .retain(|id, _| !reported.updated.contains(id) && events.is_watched(id));
        self.container_errors.extend(failed);
        watched
    }
}

/// Runs `work` in a child process and returns its results by container id. The time limit grows
/// with `containers`, because each container can delay the child.
fn run_in_child<T>(
    containers: usize,
    work: impl FnOnce() -> BTreeMap<String, T>,
) -> Result<BTreeMap<String, T>, LiveError>
where
    T: Serialize + DeserializeOwned,
{
    let work = || serde_json::to_string(&work()).unwrap_or_default();
    let answer = sys::process::run_in_child(compute_time_limit(containers), work)
        .map_err(LiveError::Fork)?;
    let results = answer.and_then(|text| serde_json::from_str(&text).ok());
    results.ok_or(LiveError::Timeout)
}

/// Returns the time limit of a child process that works on this number of containers.
fn compute_time_limit(containers: usize) -> Duration {
    let containers = u32::try_from(containers).unwrap_or(u32::MAX);
    deadline::LIMIT * containers.saturating_add(4)
}

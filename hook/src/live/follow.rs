//! `boathook follow`: keeps containers up to date while devices come and go. A device that is
//! plugged in again with another number replaces the old one in each container that has it, and
//! one that is unplugged is removed. A device that a container waits for is given when it comes.
//!
//! The attachment record says what a container has, and a look at the host says what there is. So
//! nothing is missed while this program does not run.

mod look;
mod rate_limit;
mod restore_rules;
mod state;

use std::collections::BTreeMap;
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
use look::Look;
use rate_limit::RateLimit;
use restore_rules::{CgroupWatch, ReportedContainers};
use state::FollowerState;

/// Updates one container as [`Follower`] does. Its devices may have come back with other numbers
/// while no follower ran.
pub(crate) fn catch_up(container: &str, config: &Config) -> Result<(), LiveError> {
    let records = record_files::read_all(&config.host_root);
    let Some(record) = records.iter().find(|record| record.id == container) else {
        return Ok(());
    };
    let snapshot = HostSnapshot::take(slice::from_ref(record), config);
    let record = &record.with_arrivals(&snapshot);
    let removed = find_removed(record, &snapshot, &config.host_root);
    let limit = lock::COMMAND_LIMIT;
    let was_revoked = revoke_stale(record, &removed, &snapshot, limit, config)?;
    let followed = snapshot.followed_devices(record);
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
    /// By container id: why the container's rules could not be restored.
    not_restored: BTreeMap<String, String>,
    /// The reason for which no container's rules could be restored.
    restore_error: Option<String>,
    /// The reported containers whose rules could not be restored because of that.
    pending: ReportedContainers,
    /// The error of the last look, if it failed as a whole.
    look_error: Option<String>,
    /// A device may come and go without end, and a container may be able to write to its
    /// cgroup's files.
    device_limit: RateLimit,
    cgroup_limit: RateLimit,
    /// When to look again if no event comes before.
    next_look: Option<Instant>,
    /// For how many seconds a container is left alone after a change of it failed.
    pause: NonZeroU32,
    started: Instant,
    state: FollowerState,
    /// A child process that looked at the containers, did not end in time and was left behind.
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
            cgroup_events: CgroupWatch::open().map_err(LiveError::Watch)?,
            not_restored: BTreeMap::new(),
            restore_error: None,
            pending: ReportedContainers::default(),
            look_error: None,
            device_limit: RateLimit::new(),
            cgroup_limit: RateLimit::new(),
            next_look: None,
            pause,
            started: Instant::now(),
            state: FollowerState::default(),
            hanging_child: None,
        })
    }

    /// Updates all containers once, without waiting for an event.
    pub(crate) fn begin(&mut self) {
        self.restore_rules(ReportedContainers::default());
        self.poll();
    }

    /// Waits for an event or for the time of the next look, and updates the containers.
    pub(crate) fn wait(&mut self) -> Result<(), Errno> {
        self.poll_events()?;
        let is_time = self.next_look.is_some_and(|next| next <= Instant::now());
        let may_look = self.device_limit.wait_time().is_none();
        if is_time || may_look && self.device_events.take()? {
            self.device_limit.count_run();
            self.poll();
        }
        if self.cgroup_limit.wait_time().is_none() {
            let mut reported = self.cgroup_events.read_events()?;
            // The device may have come while the container was started, before its record was
            // written.
            if self.is_any_waiting(&reported) {
                self.poll();
            }
            if is_time {
                let again = self.not_restored.keys().cloned();
                reported.updated.extend(again);
                reported.extend(mem::take(&mut self.pending));
            }
            self.restore_rules(reported);
        }
        Ok(())
    }

    fn is_any_waiting(&self, reported: &ReportedContainers) -> bool {
        if reported.new.is_empty() {
            return false;
        }
        let records = record_files::read_all(&self.config.host_root);
        let mut records = records.iter();
        records.any(|record| !record.waiting.is_empty() && reported.new.contains(&record.id))
    }

    fn poll_events(&self) -> Result<(), Errno> {
        let mut watched = Vec::new();
        let time_left = |next: Instant| next.saturating_duration_since(Instant::now());
        let mut waits: Vec<Duration> = self.next_look.map(time_left).into_iter().collect();
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

    /// Looks at the host, and updates the containers whose devices have changed. A child process
    /// does this, so that the memory of this process does not grow.
    fn poll(&mut self) {
        self.next_look = None;
        let (records, unreadable) = record_files::read_all_and_errors(&self.config.host_root);
        let records = records.len();
        let knows_containers = !self.state.devices.is_empty() || !self.state.failed.is_empty();
        if records == 0 && unreadable == self.state.unreadable && !knows_containers {
            return;
        }
        if self.hanging_child.as_ref().is_some_and(Child::exists) {
            self.revoke_stale_rules(records);
            self.next_look = Some(self.time_after_pause());
            return;
        }
        let child = sys::process::start_child(time_limit(records), || {
            let mut state = mem::take(&mut self.state);
            let look = Look {
                state: &mut state,
                now: self.started.elapsed().as_secs(),
                pause: self.pause.get().into(),
                config: self.config,
            };
            look.run();
            state.to_text()
        });
        let mut has_news = false;
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
                    has_news = true;
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
        if let Some(error) = error.as_ref().filter(|_| error != self.look_error) {
            log::warning(&format!(
                "containers do not get the devices that come and go: {error}"
            ));
        }
        self.look_error = error;
        if has_news {
            self.next_look = Some(Instant::now());
        } else if self.look_error.is_some() || !self.state.failed.is_empty() {
            self.next_look = Some(self.time_after_pause());
        }
    }

    /// Revokes the rules of devices that the host does not have, and does nothing else. The next
    /// look reports errors.
    fn revoke_stale_rules(&self, containers: usize) {
        let config = self.config;
        let child = sys::process::start_child(time_limit(containers), || {
            let deadline = Deadline::start(deadline::SECONDS);
            let records = record_files::read_all(&config.host_root);
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
            self.pending.extend(reported);
        }
        let error = error.map(|error| log::chain(&error));
        if let Some(error) = error.as_ref().filter(|_| error != self.restore_error) {
            log::warning(&format!(
                "devices that containers lose by updates are not given back: {error}"
            ));
        }
        self.restore_error = error;
        if self.restore_error.is_some() || !self.not_restored.is_empty() {
            self.next_look.get_or_insert(self.time_after_pause());
        }
    }

    fn try_restore_rules(&mut self, reported: &mut ReportedContainers) -> Result<(), LiveError> {
        if self.cgroup_events.watch_records(&self.config.host_root)? {
            let records = record_files::read_all(&self.config.host_root).into_iter();
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
            if self.not_restored.get(id) != Some(error) {
                log::warning(&format!("container {id}: {error}"));
            }
        }
        let events = &self.cgroup_events;
        self.not_restored
            .retain(|id, _| !reported.updated.contains(id) && events.is_watched(id));
        self.not_restored.extend(failed);
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
    let answer =
        sys::process::run_in_child(time_limit(containers), work).map_err(LiveError::Fork)?;
    let results = answer.and_then(|text| serde_json::from_str(&text).ok());
    results.ok_or(LiveError::TooSlow)
}

/// Returns how long a child process may work on so many containers.
fn time_limit(containers: usize) -> Duration {
    let containers = u32::try_from(containers).unwrap_or(u32::MAX);
    deadline::LIMIT * containers.saturating_add(4)
}

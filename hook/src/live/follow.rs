//! Following: a device that comes back with another number replaces the old one in each
//! container that has it, and one that is unplugged goes.
//!
//! What a container has is known by its record, and what the host has by looking: so it does
//! not matter what happened while nobody looked.

mod announce;
mod announcement;
mod host_snapshot;
mod rate_limit;
mod replace_devices;
mod restore_rules;
mod stale_rules;
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

use super::LiveError;
use super::attachment_record::AttachmentRecord;
use super::record_files;
use crate::log;
use crate::sys;
use crate::sys::deadline::{self, Deadline, Stage};
use crate::sys::process::Child;
use crate::sys::uevent::Uevents;
pub(super) use announce::DeviceChange;
use announce::{ChangedContainer, tell};
pub(super) use announcement::Announcement;
use host_snapshot::HostSnapshot;
use rate_limit::RateLimit;
use replace_devices::replace;
use restore_rules::{CgroupWatch, ReportedContainers};
use stale_rules::{RemovedDevices, find_gone, remove_nodes, revoke_stale};
use state::FollowerState;

/// So many containers are changed at once.
const MOST_AT_ONCE: usize = 8;

/// What was seen before.
pub(crate) struct Follower<'c> {
    config: &'c Config,
    events: Uevents,
    updates: CgroupWatch,
    /// By container: why its rules could not be set again.
    unmended: BTreeMap<String, String>,
    /// Why no container's could.
    failed_to_mend: Option<String>,
    /// A device may flap, and a container may be able to write its cgroup's files.
    looks: RateLimit,
    mends: RateLimit,
    /// When to look again if nothing happens until then.
    next: Option<Instant>,
    /// So many seconds a container is left alone that could not be changed.
    pause: NonZeroU32,
    began: Instant,
    seen: FollowerState,
    /// A child that looked, and was left behind.
    hanging: Option<Child>,
}

/// What a child has found out of so many containers, each of which may keep it waiting.
fn in_child<T>(
    containers: usize,
    work: impl FnOnce() -> BTreeMap<String, T>,
) -> Result<BTreeMap<String, T>, LiveError>
where
    T: Serialize + DeserializeOwned,
{
    let text = || serde_json::to_string(&work()).unwrap_or_default();
    let answer = sys::process::in_child(limit(containers), text).map_err(LiveError::Fork)?;
    let found = answer.and_then(|text| serde_json::from_str(&text).ok());
    found.ok_or(LiveError::TooSlow)
}

/// CreatedKind long a child may work for so many containers.
fn limit(containers: usize) -> Duration {
    deadline::LIMIT
        * u32::try_from(containers)
            .unwrap_or(u32::MAX)
            .saturating_add(4)
}

/// Tells the programs of a container what was attached to it or detached. `devices` is a record
/// of the container with these devices alone; its lock must be free.
pub(super) fn tell_of(devices: &AttachmentRecord, became: DeviceChange, config: &Config) {
    let sight = HostSnapshot::of(slice::from_ref(devices), config);
    tell(&[(devices, became)], &sight, config);
}

/// Changes one container as [`Follower`] does: its devices may have come back with other
/// numbers while nobody followed them.
pub(crate) fn catch_up(container: &str, config: &Config) -> Result<(), LiveError> {
    let records = record_files::all(&config.host_root);
    let Some(record) = records.iter().find(|record| record.id == container) else {
        return Ok(());
    };
    let sight = HostSnapshot::of(slice::from_ref(record), config);
    let gone = find_gone(record, &sight, &config.host_root);
    let revoked = revoke_stale(record, &gone, &sight, config)?;
    let followed = sight.followed(record);
    if revoked | (!followed.is_empty() && replace(record, &followed, &sight, config)?) {
        tell_of(record, DeviceChange::Replaced, config);
    }
    Ok(())
}

impl<'c> Follower<'c> {
    pub(crate) fn new(
        pause: NonZeroU32,
        events: Uevents,
        config: &'c Config,
    ) -> Result<Self, LiveError> {
        Ok(Follower {
            config,
            events,
            updates: CgroupWatch::open().map_err(LiveError::Watch)?,
            unmended: BTreeMap::new(),
            failed_to_mend: None,
            looks: RateLimit::new(),
            mends: RateLimit::new(),
            next: None,
            pause,
            began: Instant::now(),
            seen: FollowerState::default(),
            hanging: None,
        })
    }

    /// Looks at everything, whatever has happened before.
    pub(crate) fn begin(&mut self) {
        drop(record_files::all_reported(&self.config.host_root));
        self.mend(ReportedContainers::default());
        self.look();
    }

    /// Waits until something has happened, and does what is to be done.
    pub(crate) fn wait(&mut self) -> Result<(), Errno> {
        let mut watched = Vec::new();
        let until = |next: Instant| next.saturating_duration_since(Instant::now());
        let mut left: Vec<Duration> = self.next.map(until).into_iter().collect();
        let sources = [
            (self.events.as_fd(), &self.looks),
            (self.updates.as_fd(), &self.mends),
        ];
        for (source, pace) in sources {
            match pace.rest() {
                Some(rest) => left.push(rest),
                None => watched.push(PollFd::new(source, PollFlags::POLLIN)),
            }
        }
        // Rounded up: not to be woken too early.
        let left = left.into_iter().min();
        let left = left.map(|left| (left + Duration::from_micros(999)).as_millis());
        let left = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut watched, left) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_time = self.next.is_some_and(|next| next <= Instant::now());
        if is_time || self.looks.rest().is_none() && self.events.take()? {
            self.looks.done();
            self.look();
        }
        if self.mends.rest().is_none() {
            let mut updated = self.updates.take()?;
            if is_time {
                updated.written.extend(self.unmended.keys().cloned());
            }
            self.mend(updated);
        }
        Ok(())
    }

    /// Looks at the host, and changes the containers whose devices are others than before. A
    /// child does, so that this process stays as small as it was.
    fn look(&mut self) {
        self.next = None;
        let knows_none = self.seen.devices.is_empty() && self.seen.failed.is_empty();
        let records = record_files::all(&self.config.host_root).len();
        if knows_none && records == 0 {
            return;
        }
        if self.hanging.as_ref().is_some_and(Child::is_there) {
            self.revoke_stale(records);
            self.next = Some(self.after_pause());
            return;
        }
        let child = sys::process::start_child(limit(records), || {
            self.look_here();
            self.seen.text()
        });
        let mut has_news = false;
        let seen = child.ok().and_then(|mut child| {
            let answer = loop {
                match child.look() {
                    Ok(None) => {}
                    answer => break answer.ok().flatten().flatten(),
                }
                // A container that keeps the child waiting delays no revocation for others.
                if self.looks.rest().is_none() && self.events.take().unwrap_or_default() {
                    self.looks.done();
                    self.revoke_stale(records);
                    has_news = true;
                }
            };
            self.hanging = answer.is_none().then_some(child);
            answer
        });
        let seen = seen.and_then(|text| FollowerState::parse(&text));
        let has_looked = seen.is_some();
        self.seen = seen.unwrap_or_else(|| mem::take(&mut self.seen));
        if has_news {
            self.next = Some(Instant::now());
        } else if !has_looked || !self.seen.failed.is_empty() {
            self.next = Some(self.after_pause());
        }
    }

    /// Revokes the rules of devices that the host has no more, and does nothing else. What fails
    /// is reported by the next look.
    fn revoke_stale(&self, containers: usize) {
        let config = self.config;
        let child = sys::process::start_child(limit(containers), || {
            let _deadline = Deadline::start(deadline::SECONDS);
            let records = record_files::all(&config.host_root);
            let sight = HostSnapshot::of(&records, config);
            for record in &records {
                let gone = find_gone(record, &sight, &config.host_root);
                let _ = revoke_stale(record, &gone, &sight, config);
            }
            String::new()
        });
        let _ = child.and_then(|mut child| child.wait());
    }

    fn after_pause(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.pause.get().into())
    }

    /// Sets rules again that were lost in these containers, and watches those that are new.
    fn mend(&mut self, updated: ReportedContainers) {
        let failed = self.try_mend(updated).err();
        let failed = failed.map(|error| log::chain(&error));
        if let Some(error) = failed.as_ref().filter(|_| failed != self.failed_to_mend) {
            log::warning(&format!(
                "devices that containers lose by updates are not given back: {error}"
            ));
        }
        self.failed_to_mend = failed;
        if !self.unmended.is_empty() {
            self.next.get_or_insert(self.after_pause());
        }
    }

    fn try_mend(&mut self, mut updated: ReportedContainers) -> Result<(), LiveError> {
        if self.updates.watch_records(&self.config.host_root)? {
            let all = record_files::all(&self.config.host_root).into_iter();
            updated.new.extend(all.map(|record| record.id));
        }
        if updated.new.is_empty() && updated.written.is_empty() {
            return Ok(());
        }
        self.mends.done();
        let mut watched = Ok(());
        if !updated.new.is_empty() {
            let cgroups = || restore_rules::cgroups_of(&updated.new, self.config);
            for (id, directories) in in_child(updated.new.len(), cgroups)? {
                watched = watched.and(self.updates.watch(&id, &directories));
                updated.written.insert(id);
            }
        }
        let mend = || restore_rules::mend(&updated.written, self.config);
        let unmended = in_child(updated.written.len(), mend)?;
        for (id, error) in &unmended {
            if self.unmended.get(id) != Some(error) {
                log::warning(&format!("container {id}: {error}"));
            }
        }
        let is_known = |id: &String| !updated.written.contains(id) && self.updates.watches(id);
        self.unmended.retain(|id, _| is_known(id));
        self.unmended.extend(unmended);
        watched
    }

    fn look_here(&mut self) {
        let now = self.began.elapsed().as_secs();
        let pause = u64::from(self.pause.get());
        let records = record_files::all(&self.config.host_root);
        // Several at once, each in a child.
        let mut working = Vec::new();
        let mut looked = Vec::new();
        let deadline = Deadline::start(deadline::SECONDS);
        Stage::Planning.begin();
        let mut sight = HostSnapshot::of(&records, self.config);
        if let Ok(deadline) = deadline {
            deadline.cancel();
        }
        let unusable = mem::take(&mut sight.unusable);
        for (class, reason) in &unusable {
            if self.seen.unusable.get(class) != Some(reason) {
                log::warning(&format!(
                    "class {class}: containers get none of its devices again, and lose those \
                     that are unplugged: {reason}"
                ));
            }
        }
        self.seen.unusable = unusable;
        // Of all containers, before any of them can keep this waiting.
        let mut not_revoked = BTreeMap::new();
        let mut revoked = Vec::new();
        for record in &records {
            let gone = find_gone(record, &sight, &self.config.host_root);
            let was_revoked = revoke_stale(record, &gone, &sight, self.config);
            let was_revoked = was_revoked.unwrap_or_else(|error| {
                not_revoked.insert(&record.id, log::chain(&error));
                false
            });
            revoked.push((record, gone, was_revoked));
        }
        for (record, gone, was_revoked) in revoked {
            let followed = sight.followed(record);
            if followed.is_empty() && gone.is_empty() {
                self.seen.failed.remove(&record.id);
                continue;
            }
            let told: Vec<_> = record.devices.iter().map(|it| sight.told(it)).collect();
            let class_nodes = sight.class_nodes(record);
            let devices = format!(
                "{} {followed:?} {class_nodes} {told:?} {gone:?}",
                record.started
            );
            let failed = self.seen.failed.get(&record.id);
            if self.seen.devices.get(&record.id) == Some(&devices)
                || failed.is_some_and(|(at, _)| now.saturating_sub(*at) < pause)
            {
                continue;
            }
            while working.len() == MOST_AT_ONCE {
                self.end_some(&mut working, &mut looked, now);
            }
            let has_changed = || {
                let now = HostSnapshot::of(slice::from_ref(record), self.config);
                now.followed(record) != followed
            };
            let work = || {
                let replaced = match followed.is_empty() {
                    false => replace(record, &followed, &sight, self.config),
                    true => Ok(false),
                };
                // Those that are left by that: of classes that cannot be used, or all.
                let is_left = |key: &&String| {
                    let mut followed = followed.iter();
                    replaced.is_err() || !followed.any(|(device, _)| device.key() == **key)
                };
                let left: RemovedDevices = gone.iter().filter(is_left).cloned().collect();
                let removed = remove_nodes(record, &left, self.config);
                let done = match replaced.and_then(|was_changed| removed.map(|()| was_changed)) {
                    Err(LiveError::Ended) => Ok(None),
                    // That is told by a message of its own, and then this looks again.
                    Err(_) if has_changed() => Ok(None),
                    done => done.map(|was_changed| Some(was_changed | was_revoked)),
                };
                let done = done.map_err(|error| log::chain(&error));
                serde_json::to_string(&done).unwrap_or_default()
            };
            match sys::process::start_child(deadline::LIMIT, work) {
                Ok(child) => working.push((record, devices, child)),
                Err(errno) => looked.extend(self.end(record, devices, Err(errno), now)),
            }
        }
        while !working.is_empty() {
            self.end_some(&mut working, &mut looked, now);
        }
        for (id, error) in not_revoked {
            self.fail(id, error, now);
        }
        tell(&looked, &sight, self.config);
        let runs = |id: &String| records.iter().any(|record| record.id == *id);
        let mut seen = self.seen.devices.keys().chain(self.seen.failed.keys());
        if seen.any(|id| !runs(id)) {
            self.seen.devices.retain(|id, _| runs(id));
            self.seen.failed.retain(|id, _| runs(id));
            record_files::prune(&self.config.host_root);
        }
    }

    /// Takes those who have ended, if any has by now.
    fn end_some<'r>(
        &mut self,
        working: &mut Vec<(&'r AttachmentRecord, String, Child)>,
        looked: &mut Vec<ChangedContainer<'r>>,
        now: u64,
    ) {
        let still = mem::take(working).into_iter();
        working.extend(still.filter_map(|(record, devices, mut child)| {
            let answer = match child.look() {
                Ok(None) => return Some((record, devices, child)),
                Ok(Some(answer)) => Ok(answer),
                Err(errno) => Err(errno),
            };
            looked.extend(self.end(record, devices, answer, now));
            None
        }));
    }

    /// What became of a container: itself, and whether it was changed; `None` if its devices
    /// changed meanwhile, whatever they are by the next look. One that could not be changed,
    /// or that keeps this waiting, is left alone for a while.
    fn end<'r>(
        &mut self,
        record: &'r AttachmentRecord,
        devices: String,
        answer: Result<Option<String>, Errno>,
        now: u64,
    ) -> Option<ChangedContainer<'r>> {
        let error = match answer {
            Ok(Some(answer)) => match serde_json::from_str(&answer) {
                Ok(Ok(None)) => {
                    self.seen.devices.remove(&record.id);
                    self.seen.failed.remove(&record.id);
                    return None;
                }
                Ok(Ok(Some(was_changed))) => {
                    self.seen.devices.insert(record.id.clone(), devices);
                    self.seen.failed.remove(&record.id);
                    let became = match was_changed {
                        true => DeviceChange::Replaced,
                        false => DeviceChange::Unchanged,
                    };
                    return Some((record, became));
                }
                Ok(Err(error)) => error,
                Err(error) => error.to_string(),
            },
            Ok(None) => LiveError::TooSlow.to_string(),
            Err(errno) => log::chain(&LiveError::Fork(errno)),
        };
        self.fail(&record.id, error, now);
        None
    }

    fn fail(&mut self, id: &str, error: String, now: u64) {
        let before = self.seen.failed.get(id);
        if before.is_none_or(|(_, before)| *before != error) {
            log::warning(&format!("container {id}: {error}"));
        }
        // Also if it becomes as it was before, what is left of this attempt is to be looked at.
        self.seen.devices.remove(id);
        self.seen.failed.insert(id.to_owned(), (now, error));
    }
}

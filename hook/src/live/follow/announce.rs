//! Telling programs in containers what has come and gone, once the containers are changed.
//!
//! A record has what its container was told, so that it is told the same once, also if this
//! program is started again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use device_class::config::Config;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Uid, setresuid};
use rooted_path::read_regular_text;

use super::announcement::{Action, Announcement};
use super::host_snapshot::HostSnapshot;
use crate::live::attachment_record::AttachmentRecord;
use crate::live::{LiveError, LockedContainer, lock};
use crate::log;
use crate::sys;
use crate::sys::deadline::{self, Deadline};
use crate::sys::process::Child;
use crate::sys::uevent::UeventSender;

/// The kernel's sequence number of messages.
const SEQUENCE: &str = "/sys/kernel/uevent_seqnum";

/// What became of a container's devices just now.
#[derive(Clone, Copy)]
pub(crate) enum DeviceChange {
    /// They are as they were.
    Unchanged,
    /// They were replaced.
    Replaced,
    /// They were attached, whoever has looked at the container since.
    Attached,
    /// They were detached.
    Detached,
}

/// A container, and what became of its devices.
pub(super) type ChangedContainer<'r> = (&'r AttachmentRecord, DeviceChange);

/// By device: what there is in a container of what is to be said of it, and what is not.
type Present = BTreeMap<String, [BTreeSet<Announcement>; 2]>;

/// A network namespace, and what its programs are to be told: containers that share it are
/// told once.
struct Namespace {
    file: OwnedFd,
    /// The id of its root: who else says so is not believed.
    owner: u32,
    messages: BTreeSet<(Action, Announcement)>,
}

/// Tells the containers that have devices of classes with `announce`. A child does, which
/// enters their network namespaces; others look into the containers before, each into one, so
/// that one that never answers costs the others nothing.
pub(super) fn tell(looked: &[ChangedContainer<'_>], sight: &HostSnapshot, config: &Config) {
    let is_told = |(record, _): &ChangedContainer<'_>| {
        let mut devices = record.devices.iter();
        devices.any(|device| sight.told(device).is_some())
    };
    let looking = looked.iter().filter(|looked| is_told(looked));
    let looking: Vec<_> = looking
        .map(|looked| (looked, start_looking(looked.0, sight, config)))
        .collect();
    let mut told: Vec<(ChangedContainer<'_>, Present)> = Vec::new();
    for (&(record, became), child) in looking {
        match child.and_then(|mut child| child.wait()) {
            // It has said why not.
            Ok(Some(text)) if text.is_empty() => {}
            Ok(Some(text)) => {
                let present = serde_json::from_str(&text).unwrap_or_default();
                told.push(((record, became), present));
            }
            Ok(None) => is_told_nothing(record, &LiveError::TooSlow),
            Err(errno) => is_told_nothing(record, &LiveError::Fork(errno)),
        }
    }
    if told.is_empty() {
        return;
    }
    // Each is locked until all are told.
    told.sort_by(|((one, _), _), ((other, _), _)| one.id.cmp(&other.id));
    let answer = sys::process::in_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        tell_all(&told, config);
        String::new()
    });
    let error = match answer {
        Ok(Some(_)) => return,
        Ok(None) => LiveError::TooSlow.to_string(),
        Err(errno) => log::chain(&LiveError::Fork(errno)),
    };
    log::warning(&format!(
        "not all containers are told of their devices: {error}"
    ));
}

/// Has a child look into a container: its answer is what is [`Present`], or nothing.
fn start_looking(
    record: &AttachmentRecord,
    sight: &HostSnapshot,
    config: &Config,
) -> Result<Child, Errno> {
    sys::process::start_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        match present(record, sight, config) {
            Ok(present) => serde_json::to_string(&present).unwrap_or_default(),
            Err(error) => {
                is_told_nothing(record, &error);
                String::new()
            }
        }
    })
}

fn present(
    record: &AttachmentRecord,
    sight: &HostSnapshot,
    config: &Config,
) -> Result<Present, LiveError> {
    let running = LockedContainer::of(record, lock::PATIENCE, config)?;
    let devices = record.devices.iter().filter_map(|device| {
        let told = sight.told(device)?.iter().cloned();
        let (there, gone) = told.partition(|told| told.is_in(&running.container.namespace));
        Some((device.key(), [there, gone]))
    });
    Ok(devices.collect())
}

fn is_told_nothing(record: &AttachmentRecord, error: &LiveError) {
    if !matches!(error, LiveError::Ended) {
        let error = log::chain(error);
        log::warning(&format!("container {} is told nothing: {error}", record.id));
    }
}

fn tell_all(looked: &[(ChangedContainer<'_>, Present)], config: &Config) {
    let own = fs::metadata("/proc/self/ns/net").map(|own| own.ino()).ok();
    let mut namespaces: BTreeMap<u64, Namespace> = BTreeMap::new();
    let mut changed = Vec::new();
    for ((record, became), present) in looked {
        let (number, namespace, running) = match Namespace::of(record, *became, present, config) {
            Ok(found) => found,
            Err(error) => {
                is_told_nothing(record, &error);
                continue;
            }
        };
        // The host's programs have the kernel's and udev's own messages.
        if own.is_some_and(|own| own != number) {
            match namespaces.get_mut(&number) {
                Some(known) => known.messages.extend(namespace.messages),
                None => drop(namespaces.insert(number, namespace)),
            }
        }
        changed.push(running);
    }
    for namespace in namespaces.values().filter(|it| !it.messages.is_empty()) {
        if let Err(errno) = namespace.tell() {
            let error = log::chain(&LiveError::Network(errno));
            log::warning(&format!("a container is told nothing: {error}"));
        }
    }
    for running in changed {
        if let Err(error) = running.records.save(&running.record) {
            log::warning(&format!("container {}: {error}", running.record.id));
        }
    }
}

/// What is to be said of the difference.
fn difference(
    before: &BTreeSet<Announcement>,
    now: &BTreeSet<Announcement>,
) -> BTreeSet<(Action, Announcement)> {
    let was = |told: &Announcement| before.iter().any(|before| before.is_same(told));
    let is = |told: &Announcement| now.iter().any(|now| now.is_same(told));
    let gone = before.iter().filter(|told| !is(told));
    let gone = gone.map(|told| (Action::Remove, told.clone()));
    let new = now.difference(before).map(|told| match was(told) {
        true => (Action::Change, told.clone()),
        false => (Action::Add, told.clone()),
    });
    gone.chain(new).collect()
}

impl Namespace {
    /// The container's, with its number and what its programs are to be told, and the
    /// container with what it was told by then.
    fn of(
        record: &AttachmentRecord,
        became: DeviceChange,
        present: &Present,
        config: &Config,
    ) -> Result<(u64, Self, LockedContainer), LiveError> {
        let mut running = LockedContainer::of(record, lock::PATIENCE, config)?;
        let mut messages = BTreeSet::new();
        for (device, [now, gone]) in present {
            let known = match became {
                // The container's record has it no more.
                DeviceChange::Detached => Some(now | gone),
                _ => running.record.told.insert(device.clone(), now.clone()),
            };
            let nothing = BTreeSet::new();
            let before = match (known, became) {
                (_, DeviceChange::Attached) | (None, DeviceChange::Replaced) => nothing,
                (Some(known), _) => known,
                // It was there when the container was started.
                (None, _) => continue,
            };
            messages.extend(difference(&before, now));
        }
        let file = running.container.namespace.network()?;
        let number = fstat(&file).map_err(LiveError::Network)?.st_ino;
        let owner = running.container.namespace.owner().uid();
        let namespace = Namespace {
            file,
            owner,
            messages,
        };
        Ok((number, namespace, running))
    }

    /// Enters it, and sends the messages.
    fn tell(&self) -> Result<(), Errno> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)?;
        let sender = UeventSender::open()?;
        // libudev believes root only, as the container has it. The effective id stays, and
        // with it the capabilities.
        let root = Uid::from_raw(0);
        setresuid(Uid::from_raw(self.owner), root, root)?;
        for (action, told) in &self.messages {
            sender.kernel(&told.of_kernel(*action))?;
            let sequence = read_regular_text(Path::new(SEQUENCE), 64).unwrap_or_default();
            let sequence = sequence.trim().parse().unwrap_or(1);
            let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
            let micros = now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000;
            sender.udev(&told.of_udev(*action, sequence, micros))?;
        }
        setresuid(root, root, root)
    }
}

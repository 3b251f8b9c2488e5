//! Announcing devices that were added or removed to the programs of containers, after the
//! containers are changed.
//!
//! The attachment record has what was announced, so that nothing is announced twice, even after
//! this program was started again.

mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::slice;

use device_class::config::Config;
use device_class::name::DeviceRef;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Uid, setresuid};
use rooted_path::read_regular_text;

use message::UeventAction;

use crate::container::ContainerNamespace;
use crate::live::LiveError;
use crate::live::container::{LockedContainer, lock};
use crate::live::reconcile::HostSnapshot;
use crate::live::record::{Announcement, AttachmentRecord};
use crate::log;
use crate::sys;
use crate::sys::deadline::{self, Deadline};
use crate::sys::process::Child;
use crate::sys::uevent::UeventSender;

/// The kernel's sequence number of the last uevent.
const SEQUENCE: &str = "/sys/kernel/uevent_seqnum";

/// The change of a container's devices that is announced.
#[derive(Clone, Copy)]
pub(in crate::live) enum DeviceChange {
    Unchanged,
    Replaced,
    /// The devices were attached. Another process may have looked at the container since.
    Attached,
    Detached,
}

/// A container, and what was done with its devices.
pub(in crate::live) type ChangedContainer<'r> = (&'r AttachmentRecord, DeviceChange);

/// The announcements of one device: those of nodes that the container has, and of nodes that it
/// does not have.
type NodePresence = [BTreeSet<Announcement>; 2];

type PresentDevices = Vec<(DeviceRef, NodePresence)>;

/// A network namespace, and the messages for its programs. Containers that share the namespace
/// get each message once.
struct NetworkNamespace {
    file: OwnedFd,
    /// The user id of the namespace's root. libudev ignores messages from other users.
    owner: u32,
    messages: BTreeSet<(UeventAction, Announcement)>,
}

/// Announces devices that were attached to a container or detached from it. `devices` is a record
/// of the container with these devices alone. The caller must not hold the container's lock.
pub(in crate::live) fn announce_devices(
    devices: &AttachmentRecord,
    change: DeviceChange,
    config: &Config,
) {
    let snapshot = HostSnapshot::take(slice::from_ref(devices), config);
    announce(&[(devices, change)], &snapshot, config);
}

/// Announces the devices of containers whose classes have `announce`. For each container a child
/// process looks into it, so that a container that does not answer delays only itself; then one
/// child process enters the network namespaces.
pub(in crate::live) fn announce(
    changed: &[ChangedContainer<'_>],
    snapshot: &HostSnapshot,
    config: &Config,
) {
    let has_announcements = |record: &AttachmentRecord| {
        let mut devices = record.devices.iter();
        devices.any(|device| snapshot.announcements_of(device).is_some())
    };
    let changed = changed
        .iter()
        .filter(|(record, _)| has_announcements(record));
    let looking: Vec<_> = changed
        .map(|changed| (changed, start_looking(*changed, snapshot, config)))
        .collect();
    let mut found: Vec<(ChangedContainer<'_>, PresentDevices)> = Vec::new();
    for (&(record, change), child) in looking {
        match child.and_then(|mut child| child.wait()) {
            // The child has logged its error.
            Ok(Some(text)) if text.is_empty() => {}
            Ok(Some(text)) => {
                let present = serde_json::from_str(&text).unwrap_or_default();
                found.push(((record, change), present));
            }
            Ok(None) => warn_not_announced(record, &LiveError::TooSlow),
            Err(errno) => warn_not_announced(record, &LiveError::Fork(errno)),
        }
    }
    if found.is_empty() {
        return;
    }
    // All containers are locked at the same time. The order of ids prevents a deadlock.
    found.sort_by(|((one, _), _), ((other, _), _)| one.id.cmp(&other.id));
    let answer = sys::process::run_in_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        send_all(&found, config);
        String::new()
    });
    let error = match answer {
        Ok(Some(_)) => return,
        Ok(None) => LiveError::TooSlow.to_string(),
        Err(errno) => log::chain(&LiveError::Fork(errno)),
    };
    log::warning(&format!(
        "devices are not announced to all containers: {error}"
    ));
}

/// Starts a child process that looks into a container. It answers with [`PresentDevices`], or with
/// an empty text after an error.
fn start_looking(
    (record, change): ChangedContainer<'_>,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<Child, Errno> {
    sys::process::start_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        match find_present(record, change, snapshot, config) {
            Ok(present) => serde_json::to_string(&present).unwrap_or_default(),
            Err(error) => {
                warn_not_announced(record, &error);
                String::new()
            }
        }
    })
}

fn find_present(
    record: &AttachmentRecord,
    change: DeviceChange,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<PresentDevices, LiveError> {
    let locked = LockedContainer::from_record(record, lock::COMMAND_LIMIT, config)?;
    let devices = match change {
        DeviceChange::Attached | DeviceChange::Detached => &record.devices,
        // A device that is plugged in elsewhere has another id since `record` was read.
        DeviceChange::Unchanged | DeviceChange::Replaced => &locked.record.devices,
    };
    let devices = devices.iter().filter_map(|device| {
        let announcements = snapshot.announcements_of(device)?.iter().cloned();
        let (present, absent) =
            announcements.partition(|it| is_in(&locked.container.namespace, it));
        Some((device.device_ref(), [present, absent]))
    });
    Ok(devices.collect())
}

/// Whether a container has the node of an announcement, with the device's number.
fn is_in(container: &ContainerNamespace, announcement: &Announcement) -> bool {
    let found = container.open_file(&announcement.node).ok().flatten();
    found.is_some_and(|found| {
        found.kind().is_device() && found.stat().st_rdev == announcement.number
    })
}

fn warn_not_announced(record: &AttachmentRecord, error: &LiveError) {
    if !matches!(error, LiveError::Ended) {
        let error = log::chain(error);
        log::warning(&format!(
            "container {}: its devices are not announced: {error}",
            record.id
        ));
    }
}

/// Locks all containers, sends the messages to their network namespaces, and records them.
fn send_all(changed: &[(ChangedContainer<'_>, PresentDevices)], config: &Config) {
    let own = fs::metadata("/proc/self/ns/net").map(|own| own.ino()).ok();
    let mut namespaces: BTreeMap<u64, NetworkNamespace> = BTreeMap::new();
    let mut containers = Vec::new();
    for ((record, change), present) in changed {
        let (inode, namespace, locked) =
            match NetworkNamespace::open(record, *change, present, config) {
                Ok(opened) => opened,
                Err(error) => {
                    warn_not_announced(record, &error);
                    continue;
                }
            };
        // Programs in the host's network namespace get the messages of the host.
        if own.is_some_and(|own| own != inode) {
            match namespaces.get_mut(&inode) {
                Some(known) => known.messages.extend(namespace.messages),
                None => drop(namespaces.insert(inode, namespace)),
            }
        }
        containers.push(locked);
    }
    for namespace in namespaces.values().filter(|it| !it.messages.is_empty()) {
        if let Err(errno) = namespace.send() {
            let error = log::chain(&LiveError::Network(errno));
            log::warning(&format!(
                "a container gets no announcements of its devices: {error}"
            ));
        }
    }
    for locked in containers {
        if let Err(error) = save_announced(&locked) {
            log::warning(&format!("container {}: {error}", locked.record.id));
        }
    }
}

/// Writes what was announced to the container's record. The rest of the record stays, from which
/// another process may have detached devices without the lock.
fn save_announced(locked: &LockedContainer) -> io::Result<()> {
    if let Some(mut current) = locked.record_file.read()? {
        current.announced.clone_from(&locked.record.announced);
        locked.record_file.save(&current)?;
    }
    Ok(())
}

/// Returns the messages by which programs that know `before` learn what there is now.
fn difference(
    before: &BTreeSet<Announcement>,
    now: &BTreeSet<Announcement>,
) -> BTreeSet<(UeventAction, Announcement)> {
    let mut messages = BTreeSet::new();
    for old in before {
        if !now.iter().any(|it| it.is_same_node(old)) {
            messages.insert((UeventAction::Remove, old.clone()));
        }
    }
    for new in now.difference(before) {
        let is_known = before.iter().any(|it| it.is_same_node(new));
        let action = if is_known {
            UeventAction::Change
        } else {
            UeventAction::Add
        };
        messages.insert((action, new.clone()));
    }
    messages
}

impl NetworkNamespace {
    /// Opens the network namespace of a container. Returns its inode number, the namespace with the
    /// messages for it, and the locked container with the record of what is announced then.
    fn open(
        record: &AttachmentRecord,
        change: DeviceChange,
        present: &PresentDevices,
        config: &Config,
    ) -> Result<(u64, Self, LockedContainer), LiveError> {
        let mut locked = LockedContainer::from_record(record, lock::COMMAND_LIMIT, config)?;
        let mut messages = BTreeSet::new();
        for (device, [now, absent]) in present {
            let known = match change {
                // The container's record does not have the device any more.
                DeviceChange::Detached => Some(now | absent),
                _ => locked.record.announced.insert(device.clone(), now.clone()),
            };
            let before = match (known, change) {
                (_, DeviceChange::Attached) | (None, DeviceChange::Replaced) => BTreeSet::new(),
                (Some(known), _) => known,
                // The container was started with the device.
                (None, _) => continue,
            };
            messages.extend(difference(&before, now));
        }
        let file = locked.container.namespace.open_network_namespace()?;
        let inode = fstat(&file).map_err(LiveError::Network)?.st_ino;
        let owner = locked.container.namespace.owner().uid();
        let namespace = NetworkNamespace {
            file,
            owner,
            messages,
        };
        Ok((inode, namespace, locked))
    }

    /// Enters the namespace and sends the messages.
    fn send(&self) -> Result<(), Errno> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)?;
        let sender = UeventSender::open()?;
        // libudev accepts messages only from the user that is root in its user namespace. The
        // effective user id stays, and with it the capabilities.
        let root = Uid::from_raw(0);
        setresuid(Uid::from_raw(self.owner), root, root)?;
        for (action, announcement) in &self.messages {
            sender.send_as_kernel(&announcement.kernel_message(*action))?;
            let sequence = read_regular_text(Path::new(SEQUENCE), 64).unwrap_or_default();
            let sequence = sequence.trim().parse().unwrap_or(1);
            let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
            let micros = now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000;
            sender.send_as_udev(&announcement.udev_message(*action, sequence, micros))?;
        }
        setresuid(root, root, root)
    }
}

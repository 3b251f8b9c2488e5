//! Announces added and removed devices to the programs of containers by uevents, after the containers
//! are changed.
//!
//! The attachment record has the announcements that were sent, so that none is sent twice, even after
//! this program was started again.

mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::slice;
use std::time::Duration;

use device_class::config::Config;
use device_class::name::DeviceRef;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Uid, setresuid};
use rooted_path::read_regular_text;
use serde::{Deserialize, Serialize};

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

/// How the devices of a container were changed.
#[derive(Clone, Copy)]
pub(in crate::live) enum DeviceChange {
    Unchanged,
    Replaced,
    /// The devices were attached. Another process may have announced the devices meanwhile.
    Attached,
    Detached,
}

/// A container, and how its devices were changed.
pub(in crate::live) type ChangedContainer<'r> = (&'r AttachmentRecord, DeviceChange);

/// The announcements of one device, by whether the container has the announced node.
#[derive(Serialize, Deserialize)]
struct NodePresence {
    present: BTreeSet<Announcement>,
    absent: BTreeSet<Announcement>,
}

type PresentDevices = Vec<(DeviceRef, NodePresence)>;

/// The announced nodes of a container, and the inode number of its network namespace.
#[derive(Serialize, Deserialize)]
struct AnnouncedNodes {
    network: u64,
    devices: PresentDevices,
}

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

/// Announces the devices of containers whose classes have `announce`. For each container, a child
/// process finds its nodes. Then a child process for each network namespace sends the messages. So a
/// container that does not answer keeps only messages of its own network namespace back.
pub(in crate::live) fn announce(
    changed: &[ChangedContainer<'_>],
    snapshot: &HostSnapshot,
    config: &Config,
) {
    let has_announcements = |record: &AttachmentRecord| {
        let mut devices = record.devices.iter();
        devices.any(|device| snapshot.find_announcements(device).is_some())
    };
    let changed = changed
        .iter()
        .filter(|(record, _)| has_announcements(record));
    let searches: Vec<_> = changed
        .map(|changed| (changed, start_finding_nodes(*changed, snapshot, config)))
        .collect();
    let mut by_network: BTreeMap<u64, Vec<(ChangedContainer<'_>, PresentDevices)>> =
        BTreeMap::new();
    for (&(record, change), child) in searches {
        match child.and_then(|mut child| child.wait()) {
            // The child has logged its error.
            Ok(Some(text)) if text.is_empty() => {}
            Ok(Some(text)) => match serde_json::from_str(&text) {
                Ok(AnnouncedNodes { network, devices }) => {
                    let containers = by_network.entry(network).or_default();
                    containers.push(((record, change), devices));
                }
                Err(error) => {
                    warn_not_announced(record, &LiveError::ChildProcess(error.to_string()));
                }
            },
            Ok(None) => warn_not_announced(record, &LiveError::Timeout),
            Err(errno) => warn_not_announced(record, &LiveError::Fork(errno)),
        }
    }
    // The containers of one network namespace are locked at the same time. The order of their ids
    // prevents a deadlock.
    for containers in by_network.values_mut() {
        containers.sort_by(|((one, _), _), ((other, _), _)| one.id.cmp(&other.id));
    }
    let send = |containers: &Vec<_>| {
        let _deadline = Deadline::start(deadline::SECONDS);
        send_messages(containers, config);
    };
    for (network, error) in run_for_each(&by_network, deadline::LIMIT, send) {
        for ((record, _), _) in &by_network[network] {
            warn_not_announced(record, &error);
        }
    }
}

/// Calls `work` for each value in a child process of its own. Returns the errors, by key. A child
/// that does not end within `limit` does not affect the others, which run at the same time.
fn run_for_each<K: Ord, T>(
    values: &BTreeMap<K, T>,
    limit: Duration,
    work: impl Fn(&T),
) -> Vec<(&K, LiveError)> {
    let children: Vec<_> = values
        .iter()
        .map(|(key, value)| {
            let child = sys::process::start_child(limit, || {
                work(value);
                String::new()
            });
            (key, child)
        })
        .collect();
    let mut errors = Vec::new();
    for (key, child) in children {
        match child.and_then(|mut child| child.wait()) {
            Ok(Some(_)) => {}
            Ok(None) => errors.push((key, LiveError::Timeout)),
            Err(errno) => errors.push((key, LiveError::Fork(errno))),
        }
    }
    errors
}

/// Starts a child process that finds the announced nodes in a container. It answers with
/// [`AnnouncedNodes`], or with an empty text after an error.
fn start_finding_nodes(
    (record, change): ChangedContainer<'_>,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<Child, Errno> {
    sys::process::start_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        match find_present_nodes(record, change, snapshot, config) {
            Ok(nodes) => serde_json::to_string(&nodes).unwrap_or_default(),
            Err(error) => {
                warn_not_announced(record, &error);
                String::new()
            }
        }
    })
}

fn find_present_nodes(
    record: &AttachmentRecord,
    change: DeviceChange,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<AnnouncedNodes, LiveError> {
    let locked = LockedContainer::from_record(record, lock::COMMAND_LIMIT, config)?;
    let devices = match change {
        DeviceChange::Attached | DeviceChange::Detached => &record.devices,
        // A device that is plugged in elsewhere has another id since `record` was read.
        DeviceChange::Unchanged | DeviceChange::Replaced => &locked.record.devices,
    };
    let devices = devices.iter().filter_map(|device| {
        let announcements = snapshot.find_announcements(device)?.iter().cloned();
        let (present, absent) =
            announcements.partition(|it| has_announced_node(&locked.container.namespace, it));
        Some((device.device_ref(), NodePresence { present, absent }))
    });
    let network = locked.container.namespace.open_network_namespace()?;
    Ok(AnnouncedNodes {
        network: fstat(&network).map_err(LiveError::NetworkNamespace)?.st_ino,
        devices: devices.collect(),
    })
}

/// Whether a container has the node of an announcement, with the device's number.
fn has_announced_node(container: &ContainerNamespace, announcement: &Announcement) -> bool {
    let found = container.open_file(&announcement.node).ok().flatten();
    found.is_some_and(|found| {
        found.kind().is_device() && found.stat().st_rdev == announcement.number
    })
}

fn warn_not_announced(record: &AttachmentRecord, error: &LiveError) {
    if !matches!(error, LiveError::ContainerEnded) {
        let error = log::chain(error);
        log::warning(&format!(
            "container {}: its devices are not announced: {error}",
            record.id
        ));
    }
}

/// Locks all containers, sends the messages to their network namespaces, and records the
/// announcements.
fn send_messages(changed: &[(ChangedContainer<'_>, PresentDevices)], config: &Config) {
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
            let error = log::chain(&LiveError::NetworkNamespace(errno));
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

/// Writes the announcements to the container's record. The rest of the file stays as it is, because
/// another process may have detached devices from it without the lock.
fn save_announced(locked: &LockedContainer) -> io::Result<()> {
    let announced = &locked.record.announced;
    let set_announced = |current: &mut AttachmentRecord| current.announced.clone_from(announced);
    locked.record_file.update(&locked.record, set_announced)?;
    Ok(())
}

/// Returns the messages for programs that know the announcements `before` and are to know those in
/// `now`.
fn diff_announcements(
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
        present_devices: &PresentDevices,
        config: &Config,
    ) -> Result<(u64, Self, LockedContainer), LiveError> {
        let mut locked = LockedContainer::from_record(record, lock::COMMAND_LIMIT, config)?;
        let mut messages = BTreeSet::new();
        for (device, NodePresence { present, absent }) in present_devices {
            let known = match change {
                // The container's record does not have the device any more.
                DeviceChange::Detached => Some(present | absent),
                _ => locked
                    .record
                    .announced
                    .insert(device.clone(), present.clone()),
            };
            let before = match (known, change) {
                (_, DeviceChange::Attached) | (None, DeviceChange::Replaced) => BTreeSet::new(),
                (Some(known), _) => known,
                // The container was started with the device.
                (None, _) => continue,
            };
            messages.extend(diff_announcements(&before, present));
        }
        let file = locked.container.namespace.open_network_namespace()?;
        let inode = fstat(&file).map_err(LiveError::NetworkNamespace)?.st_ino;
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

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn a_child_process_that_hangs_does_not_affect_the_others() {
        let top = tempfile::tempdir().unwrap();
        let names = ["a", "hangs", "z"].map(|name| (name, top.path().join(name)));
        let values = BTreeMap::from(names);
        let errors = run_for_each(&values, Duration::from_millis(300), |path| {
            if path.ends_with("hangs") {
                sleep(Duration::from_secs(60));
            }
            fs::write(path, "").unwrap();
        });
        let failed: Vec<_> = errors.iter().map(|(name, _)| **name).collect();
        assert_eq!(failed, ["hangs"]);
        let done = values.iter().filter(|(_, path)| path.exists());
        assert_eq!(done.map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "z"]);
    }
}

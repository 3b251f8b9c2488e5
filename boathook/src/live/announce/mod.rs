//! Sends uevents to the programs of containers after devices were added to the containers or
//! removed from them.
//!
//! The attachment record contains the announcements that were sent. So no announcement is sent
//! twice, even if this program is restarted.

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
use hook::attachment::{Announcement, AttachmentRecord, lock};
use hook::container::ContainerNamespace;
use hook::log;
use hook::sys;
use hook::sys::deadline::{self, Deadline};
use hook::sys::process::Child;
use hook::sys::uevent::UeventSender;
use host_files::rooted_path::read_regular_text;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Uid, setresuid};
use serde::{Deserialize, Serialize};

use message::{UeventAction, format_kernel_message, format_udev_message};

use crate::live::ContainerChangeError;
use crate::live::container::LockedContainer;
use crate::live::reconcile::HostSnapshot;

/// The file that contains the sequence number of the kernel's last uevent.
const UEVENT_SEQNUM_PATH: &str = "/sys/kernel/uevent_seqnum";

/// The way in which a container's devices changed. It determines which uevents the programs of the
/// container get.
#[derive(Clone, Copy)]
pub(crate) enum DeviceChange {
    Unchanged,
    Replaced,
    /// The devices were attached to the container. They are announced even if the attachment record
    /// says that another process has already announced them.
    Attached,
    Detached,
}

pub(crate) type ChangedContainer<'r> = (&'r AttachmentRecord, DeviceChange);

/// The announcements of the nodes of one device. They are split by whether the container has the
/// node now.
#[derive(Serialize, Deserialize)]
struct DeviceAnnouncements {
    announcements_with_node: BTreeSet<Announcement>,
    announcements_without_node: BTreeSet<Announcement>,
}

type AnnouncementsByDevice = Vec<(DeviceRef, DeviceAnnouncements)>;

/// The uevents for one container, grouped by device, and the inode number of the container's
/// network namespace. Containers with the same number share their namespace.
#[derive(Serialize, Deserialize)]
struct AnnouncedNodes {
    network_inode: u64,
    devices: AnnouncementsByDevice,
}

/// A network namespace, and the messages for the programs in it. Several containers can share the
/// namespace. Each message is sent only once.
struct NetworkNamespace {
    file: OwnedFd,
    /// The user id, on the host, of the root user of the namespace. libudev ignores messages from
    /// other users.
    root_uid: u32,
    messages: BTreeSet<(UeventAction, Announcement)>,
}

/// Announces devices that were attached to a container or detached from it. `device_record` is the
/// attachment record of the container, reduced to these devices. The caller must not hold the
/// container's lock, because a child process takes it here.
pub(crate) fn announce_devices(
    device_record: &AttachmentRecord,
    change: DeviceChange,
    config: &Config,
) {
    let snapshot = HostSnapshot::take(slice::from_ref(device_record), config);
    announce_changes(&[(device_record, change)], &snapshot, config);
}

/// Announces changed devices to the programs of containers. A device is announced only if its class
/// has `announce = true`.
///
/// For each container, a child process looks for the device nodes. Then, for each network
/// namespace, a child process sends the messages. So a hanging container delays only the messages
/// for its own network namespace.
pub(crate) fn announce_changes(
    changed_containers: &[ChangedContainer<'_>],
    snapshot: &HostSnapshot,
    config: &Config,
) {
    let has_announcements = |record: &AttachmentRecord| {
        let mut devices = record.devices.iter();
        devices.any(|device| snapshot.find_announcements(device).is_some())
    };
    let changed_containers = changed_containers
        .iter()
        .filter(|(record, _)| has_announcements(record));
    let searches_by_container: Vec<_> = changed_containers
        .map(|changed_container| {
            (
                changed_container,
                start_node_search(*changed_container, snapshot, config),
            )
        })
        .collect();
    let mut containers_by_network: BTreeMap<
        u64,
        Vec<(ChangedContainer<'_>, AnnouncementsByDevice)>,
    > = BTreeMap::new();
    for (&(record, change), child) in searches_by_container {
        match child.and_then(|mut child| child.wait()) {
            // The child process has logged its error.
            Ok(Some(text)) if text.is_empty() => {}
            Ok(Some(text)) => match serde_json::from_str(&text) {
                Ok(AnnouncedNodes {
                    network_inode,
                    devices,
                }) => {
                    let containers = containers_by_network.entry(network_inode).or_default();
                    containers.push(((record, change), devices));
                }
                Err(error) => {
                    log_announcement_error(
                        record,
                        &ContainerChangeError::ChildProcess(error.to_string()),
                    );
                }
            },
            Ok(None) => log_announcement_error(record, &ContainerChangeError::Timeout),
            Err(errno) => log_announcement_error(record, &ContainerChangeError::Fork(errno)),
        }
    }
    // The containers of one network namespace are locked together, in the order of their ids. This
    // order prevents a deadlock with other processes.
    for containers in containers_by_network.values_mut() {
        containers.sort_by(|((first, _), _), ((second, _), _)| first.id.cmp(&second.id));
    }
    let send = |containers: &Vec<_>| {
        let _deadline = Deadline::start(deadline::DEADLINE_SECONDS);
        send_messages(containers, config);
    };
    for (inode, error) in run_in_children(&containers_by_network, deadline::CHILD_TIMEOUT, send) {
        for ((record, _), _) in &containers_by_network[inode] {
            log_announcement_error(record, &error);
        }
    }
}

/// Calls `work` for each value in a child process of its own. Returns only the errors, each with
/// the key of its value. All child processes run at the same time, so each of them has the whole
/// `time_limit`.
fn run_in_children<K: Ord, T>(
    values: &BTreeMap<K, T>,
    time_limit: Duration,
    work: impl Fn(&T),
) -> Vec<(&K, ContainerChangeError)> {
    let children: Vec<_> = values
        .iter()
        .map(|(key, value)| {
            let child = sys::process::start_child(time_limit, || {
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
            Ok(None) => errors.push((key, ContainerChangeError::Timeout)),
            Err(errno) => errors.push((key, ContainerChangeError::Fork(errno))),
        }
    }
    errors
}

/// Starts a child process that checks which of the announced device nodes a container has. The
/// child process returns [`AnnouncedNodes`] as JSON, or an empty text after an error.
fn start_node_search(
    (record, change): ChangedContainer<'_>,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<Child, Errno> {
    sys::process::start_child(deadline::CHILD_TIMEOUT, || {
        let _deadline = Deadline::start(deadline::DEADLINE_SECONDS);
        match find_announced_nodes(record, change, snapshot, config) {
            Ok(nodes) => serde_json::to_string(&nodes).unwrap_or_default(),
            Err(error) => {
                log_announcement_error(record, &error);
                String::new()
            }
        }
    })
}

fn find_announced_nodes(
    record: &AttachmentRecord,
    change: DeviceChange,
    snapshot: &HostSnapshot,
    config: &Config,
) -> Result<AnnouncedNodes, ContainerChangeError> {
    let locked_container =
        LockedContainer::from_record(record, lock::COMMAND_LOCK_TIMEOUT, config)?;
    let devices = match change {
        DeviceChange::Attached | DeviceChange::Detached => &record.devices,
        // `locked_container.record` is newer than `record`. In the newer record, a device may have
        // another id, because it was plugged in at another port.
        DeviceChange::Unchanged | DeviceChange::Replaced => &locked_container.record.devices,
    };
    let devices = devices.iter().filter_map(|device| {
        let announcements = snapshot.find_announcements(device)?.iter().cloned();
        let (announcements_with_node, announcements_without_node) = announcements
            .partition(|node| has_announced_node(&locked_container.container.namespace, node));
        Some((
            device.device_ref(),
            DeviceAnnouncements {
                announcements_with_node,
                announcements_without_node,
            },
        ))
    });
    let network = locked_container
        .container
        .namespace
        .open_network_namespace()?;
    Ok(AnnouncedNodes {
        network_inode: fstat(&network)
            .map_err(ContainerChangeError::NetworkNamespace)?
            .st_ino,
        devices: devices.collect(),
    })
}

/// Reports whether a container has the device node of an announcement, and the node has the
/// announced device number.
fn has_announced_node(container: &ContainerNamespace, announcement: &Announcement) -> bool {
    let node = container.open_file(&announcement.node_path).ok().flatten();
    node.is_some_and(|node| node.kind().is_device() && node.stat().st_rdev == announcement.number)
}

fn log_announcement_error(record: &AttachmentRecord, error: &ContainerChangeError) {
    if !matches!(error, ContainerChangeError::ContainerEnded) {
        let error = log::format_error_chain(error);
        log::warning(&format!(
            "container {}: its devices are not announced: {error}",
            record.id
        ));
    }
}

/// Locks all containers, sends the messages to their network namespaces, and records the
/// announcements.
fn send_messages(
    changed_containers: &[(ChangedContainer<'_>, AnnouncementsByDevice)],
    config: &Config,
) {
    let host_inode = fs::metadata("/proc/self/ns/net")
        .map(|file| file.ino())
        .ok();
    let mut namespaces: BTreeMap<u64, NetworkNamespace> = BTreeMap::new();
    let mut containers = Vec::new();
    for ((record, change), devices) in changed_containers {
        let (inode, namespace, locked_container) =
            match NetworkNamespace::open(record, *change, devices, config) {
                Ok(namespace_and_container) => namespace_and_container,
                Err(error) => {
                    log_announcement_error(record, &error);
                    continue;
                }
            };
        // If a container is in the host's network namespace, its programs get the uevents of the
        // host. So no messages are sent to it.
        if host_inode.is_some_and(|host_inode| host_inode != inode) {
            match namespaces.get_mut(&inode) {
                Some(existing_namespace) => existing_namespace.messages.extend(namespace.messages),
                None => drop(namespaces.insert(inode, namespace)),
            }
        }
        containers.push(locked_container);
    }
    for namespace in namespaces
        .values()
        .filter(|namespace| !namespace.messages.is_empty())
    {
        if let Err(errno) = namespace.send() {
            let error = log::format_error_chain(&ContainerChangeError::NetworkNamespace(errno));
            log::warning(&format!(
                "a container gets no announcements of its devices: {error}"
            ));
        }
    }
    for locked_container in containers {
        if let Err(error) = save_announcements(&locked_container) {
            log::warning(&format!(
                "container {}: {error}",
                locked_container.record.id
            ));
        }
    }
}

/// Writes the announcements to the container's record file. Does not write the other fields of the
/// record: another process may have removed detached devices from the file without the lock.
fn save_announcements(locked_container: &LockedContainer) -> io::Result<()> {
    let announcements = &locked_container.record.announcements;
    let set_announced =
        |record: &mut AttachmentRecord| record.announcements.clone_from(announcements);
    locked_container
        .record_file
        .update(&locked_container.record, set_announced)?;
    Ok(())
}

/// Compares the announcements that the programs have already received with the current ones.
/// Returns the messages that report the difference.
fn diff_announcements(
    previous_announcements: &BTreeSet<Announcement>,
    current_announcements: &BTreeSet<Announcement>,
) -> BTreeSet<(UeventAction, Announcement)> {
    let mut messages = BTreeSet::new();
    for old_announcement in previous_announcements {
        if !current_announcements
            .iter()
            .any(|new_announcement| new_announcement.is_same_node(old_announcement))
        {
            messages.insert((UeventAction::Remove, old_announcement.clone()));
        }
    }
    for new_announcement in current_announcements.difference(previous_announcements) {
        let is_known = previous_announcements
            .iter()
            .any(|old_announcement| old_announcement.is_same_node(new_announcement));
        let action = if is_known {
            UeventAction::Change
        } else {
            UeventAction::Add
        };
        messages.insert((action, new_announcement.clone()));
    }
    messages
}

impl NetworkNamespace {
    /// Opens the network namespace of a container. Returns the inode number of the namespace, the
    /// namespace with its messages, and the locked container.
    ///
    /// The record of the returned container already contains the new announcements. The caller
    /// saves the record after it has sent the messages.
    fn open(
        record: &AttachmentRecord,
        change: DeviceChange,
        announcements_by_device: &AnnouncementsByDevice,
        config: &Config,
    ) -> Result<(u64, Self, LockedContainer), ContainerChangeError> {
        let mut locked_container =
            LockedContainer::from_record(record, lock::COMMAND_LOCK_TIMEOUT, config)?;
        let mut messages = BTreeSet::new();
        for (device, device_announcements) in announcements_by_device {
            let DeviceAnnouncements {
                announcements_with_node,
                announcements_without_node,
            } = device_announcements;
            let earlier_announcements = match change {
                // The record no longer has the detached device or its announcements. So all nodes
                // of the device are treated as announced. Each node that the container has lost
                // then gets a `remove` message.
                DeviceChange::Detached => {
                    Some(announcements_with_node | announcements_without_node)
                }
                _ => locked_container
                    .record
                    .announcements
                    .insert(device.clone(), announcements_with_node.clone()),
            };
            let previous_announcements = match (earlier_announcements, change) {
                (_, DeviceChange::Attached) | (None, DeviceChange::Replaced) => BTreeSet::new(),
                (Some(announcements), _) => announcements,
                // The container was started with the device, so no message is needed.
                (None, _) => continue,
            };
            messages.extend(diff_announcements(
                &previous_announcements,
                announcements_with_node,
            ));
        }
        let file = locked_container
            .container
            .namespace
            .open_network_namespace()?;
        let inode = fstat(&file)
            .map_err(ContainerChangeError::NetworkNamespace)?
            .st_ino;
        let root_uid = locked_container.container.namespace.owner().uid();
        let namespace = NetworkNamespace {
            file,
            root_uid,
            messages,
        };
        Ok((inode, namespace, locked_container))
    }

    /// Moves this process into the network namespace, and sends each message there twice: in the
    /// kernel's format and in udev's.
    fn send(&self) -> Result<(), Errno> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)?;
        let sender = UeventSender::open()?;
        // libudev accepts only messages from the root user of its user namespace. The effective
        // user id does not change, so that this process keeps its capabilities.
        let root = Uid::from_raw(0);
        setresuid(Uid::from_raw(self.root_uid), root, root)?;
        for (action, announcement) in &self.messages {
            sender.send_as_kernel(&format_kernel_message(announcement, *action))?;
            let sequence_number =
                read_regular_text(Path::new(UEVENT_SEQNUM_PATH), 64).unwrap_or_default();
            let sequence_number = sequence_number.trim().parse().unwrap_or(1);
            let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
            let boot_micros = time.tv_sec() * 1_000_000 + time.tv_nsec() / 1000;
            sender.send_as_udev(&format_udev_message(
                announcement,
                *action,
                sequence_number,
                boot_micros,
            ))?;
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
        let errors = run_in_children(&values, Duration::from_millis(300), |path| {
            if path.ends_with("hangs") {
                sleep(Duration::from_secs(60));
            }
            fs::write(path, "").unwrap();
        });
        let failed_names: Vec<_> = errors.iter().map(|(name, _)| **name).collect();
        assert_eq!(failed_names, ["hangs"]);
        let finished_values = values.iter().filter(|(_, path)| path.exists());
        assert_eq!(
            finished_values.map(|(name, _)| *name).collect::<Vec<_>>(),
            ["a", "z"]
        );
    }
}

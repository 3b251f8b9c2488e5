//! Revokes rules for devices that the host does not have any more, or that have another number now.
//!
//! The next device that is plugged in may get such a number. So these rules are revoked before all
//! other changes, and even if the container, its bundle or its request cannot be used.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use device_class::config::Config;
use device_class::name::{ClassName, DeviceRef};
use injection_plan::plan::StepUser;

use crate::live::LiveError;
use crate::live::container::{lock, record_files::LockedRecord};
use crate::live::reconcile::{HostSnapshot, remove_container_files};
use crate::live::record::{AttachedDevice, AttachmentRecord, CreatedFile, RecordedRule};
use crate::log;

/// The devices of a container that the host does not have.
pub(in crate::live) type RemovedDevices = BTreeSet<DeviceRef>;

pub(in crate::live) fn find_removed(
    record: &AttachmentRecord,
    snapshot: &HostSnapshot,
    root: &Path,
) -> RemovedDevices {
    let is_removed = |device: &&AttachedDevice| match snapshot.has_device(device) {
        Some(is_present) => !is_present,
        // The class cannot be used. So the host's nodes show whether the device is there.
        None => has_lost_own_node(record, device, root),
    };
    let removed = record.devices.iter().filter(is_removed);
    removed.map(AttachedDevice::device_ref).collect()
}

fn is_removed(removed: &RemovedDevices, user: &StepUser) -> bool {
    user.device().is_some_and(|device| removed.contains(device))
}

/// Whether a node that only this device needs is gone from the host or was replaced.
fn has_lost_own_node(record: &AttachmentRecord, device: &AttachedDevice, root: &Path) -> bool {
    let own_users = [StepUser::Device(device.device_ref())];
    let mut own = record.rules.iter().filter(|rule| rule.users == own_users);
    own.any(|rule| rule.has_lost_node(root))
}

/// Revokes the rules of removed devices and for earlier numbers of devices, and removes them from the
/// record. After the rules are revoked, it waits at most `lock_limit` for the container's lock.
/// Returns whether a rule was revoked.
pub(in crate::live) fn revoke_stale(
    record: &AttachmentRecord,
    removed: &RemovedDevices,
    snapshot: &HostSnapshot,
    lock_limit: Duration,
    config: &Config,
) -> Result<bool, LiveError> {
    let root = &config.host_root;
    let need = RuleNeed {
        record,
        removed,
        snapshot,
        root,
    };
    let is_stale = |rule: &&RecordedRule| {
        let mut users = rule.users.iter();
        !rule.users.is_empty() && !users.any(|user| need.is_needed_by(user, rule))
    };
    let stale: Vec<RecordedRule> = record.rules.iter().filter(is_stale).cloned().collect();
    if stale.is_empty() {
        update_host_nodes(record, snapshot, lock_limit, root)?;
        return Ok(false);
    }
    let mut kept = record.clone();
    kept.remove_revoked(&stale);
    for warning in record.revoke(&stale, &kept)? {
        log::warning(&format!("container {}: {warning}", record.id));
    }
    // Another process may have changed the record before it was locked.
    let record_file = LockedRecord::open(root, &record.id, lock_limit)?;
    let updated = record_file.update(record, |current| current.remove_revoked(&stale))?;
    if let Some(current) = updated {
        // A process that had the lock may have allowed them again, by the record as it was.
        let allowed_again = current.find_still_allowed(&stale, &current);
        for warning in current.revoke(&allowed_again, &current)? {
            log::warning(&format!("container {}: {warning}", record.id));
        }
    }
    for rule in &stale {
        let (id, users) = (&record.id, rule.users.iter());
        let users: Vec<String> = users.map(ToString::to_string).collect();
        let (rule, users) = (rule.rule, users.join(", "));
        log::report_action(&format!(
            "container {id}: {rule} is revoked: the host has {users} no more, or elsewhere"
        ));
    }
    Ok(true)
}

/// Determines whether a device or a class of a container still needs a rule.
struct RuleNeed<'a> {
    record: &'a AttachmentRecord,
    removed: &'a RemovedDevices,
    snapshot: &'a HostSnapshot,
    root: &'a Path,
}

impl RuleNeed<'_> {
    fn is_needed_by(&self, user: &StepUser, rule: &RecordedRule) -> bool {
        let device = match user {
            StepUser::Class(class) => return self.is_needed_by_class(class, rule),
            StepUser::Device(device) => device,
        };
        let mut devices = self.record.devices.iter();
        // A device that was detached needs nothing.
        let known = devices.find(|known| known.matches_user(user));
        !self.removed.contains(device)
            && known.is_some_and(|known| self.is_needed_by_device(known, rule))
    }

    fn is_needed_by_device(&self, device: &AttachedDevice, rule: &RecordedRule) -> bool {
        let shares_with_removed = || rule.users.iter().any(|user| is_removed(self.removed, user));
        // The snapshot cannot tell whether the host has the device. If the device is not followed,
        // this matters only for a rule that a removed device needed as well.
        let is_uncertain = match self.snapshot.has_device(device) {
            None => true,
            Some(_) => self.snapshot.is_unfollowed(&device.class) && shares_with_removed(),
        };
        let is_lost = is_uncertain && rule.has_lost_node(self.root);
        !is_lost && !self.snapshot.has_other_number(device, rule, self.root)
    }

    /// Whether a class needs the rule for a node that all its devices share.
    fn is_needed_by_class(&self, class: &ClassName, rule: &RecordedRule) -> bool {
        let mut devices = self.record.devices.iter();
        let host_node = rule.host_node.as_ref();
        let has_other_number = || host_node.is_some_and(|node| node.has_other_number(self.root));
        devices.any(|device| device.class == *class)
            && (self.snapshot.is_unfollowed(class) || !has_other_number())
    }
}

/// Records the present host nodes of devices that were plugged in again with the same number. The
/// rule is for the new node from then on.
fn update_host_nodes(
    record: &AttachmentRecord,
    snapshot: &HostSnapshot,
    lock_limit: Duration,
    root: &Path,
) -> Result<(), LiveError> {
    let has_returned = |rule: &RecordedRule| {
        let devices = record.devices.iter();
        let mut devices = devices.filter(|it| {
            rule.users
                .iter()
                .any(|user| user.is_device(&it.device_ref()))
        });
        rule.has_lost_node(root)
            && devices.any(|device| {
                snapshot.has_device(device) == Some(true)
                    && !snapshot.is_unfollowed(&device.class)
                    && !snapshot.has_other_number(device, rule, root)
            })
    };
    if !record.rules.iter().any(has_returned) {
        return Ok(());
    }
    let record_file = LockedRecord::open(root, &record.id, lock_limit)?;
    record_file.update(record, |current| {
        for rule in current.rules.iter_mut().filter(|rule| has_returned(rule)) {
            rule.update_host_node(root);
        }
    })?;
    Ok(())
}

/// Removes the nodes and links of removed devices from a container. For a device whose class cannot
/// be used, nothing else can be removed.
pub(in crate::live) fn remove_nodes(
    record: &AttachmentRecord,
    removed: &RemovedDevices,
    config: &Config,
) -> Result<(), LiveError> {
    if removed.is_empty() {
        return Ok(());
    }
    let record_file = LockedRecord::open(&config.host_root, &record.id, lock::FOLLOW_LIMIT)?;
    let current = record_file.read()?;
    let Some(mut current) = current.filter(|current| current.is_from_same_start(record)) else {
        return Ok(());
    };
    let as_read = current.clone();
    let belongs_to_removed = |file: &CreatedFile| {
        let mut users = file.users.iter();
        file.is_node_or_link()
            && !file.users.is_empty()
            && users.all(|user| is_removed(removed, user))
    };
    let (files, kept) = current.files.drain(..).partition(belongs_to_removed);
    current.files = kept;
    let remove_files = AttachmentRecord {
        files,
        ..record.without_content()
    };
    remove_container_files(record, &remove_files)?;
    Ok(record_file.save_merged(&as_read, &mut current)?)
}

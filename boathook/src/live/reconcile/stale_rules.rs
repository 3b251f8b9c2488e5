//! Revokes stale rules. A rule is stale if the host no longer has its device, or if its device has
//! another number now.
//!
//! The next device that is plugged in may get the number of a stale rule. So stale rules are
//! revoked before all other changes, even if the container, its bundle or its request cannot be
//! used.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use device_class::config::Config;
use device_class::name::{ClassName, DeviceRef};
use hook::attachment::{
    AttachmentRecord, ContainerDevice, CreatedFile, LockedRecord, RecordedRule, lock,
};
use hook::log;
use injection_plan::plan::StepOwner;

use crate::live::ContainerChangeError;
use crate::live::reconcile::HostSnapshot;
use crate::live::reconcile::change::remove_container_files;

pub(crate) type RemovedDevices = BTreeSet<DeviceRef>;

/// Returns the devices of a container that the host no longer has.
pub(crate) fn find_removed_devices(
    record: &AttachmentRecord,
    snapshot: &HostSnapshot,
    host_root: &Path,
) -> RemovedDevices {
    let is_removed = |device: &&ContainerDevice| match snapshot.has_device(device) {
        Some(is_present) => !is_present,
        // The class cannot be used, so its devices are unknown. The host has the device if its
        // device nodes still exist.
        None => has_lost_exclusive_node(record, device, host_root),
    };
    let removed_devices = record.devices.iter().filter(is_removed);
    removed_devices.map(ContainerDevice::device_ref).collect()
}

fn is_owner_removed(removed_devices: &RemovedDevices, owner: &StepOwner) -> bool {
    owner
        .device()
        .is_some_and(|device| removed_devices.contains(device))
}

/// Reports whether the host has removed or replaced a device node that only this device needs.
fn has_lost_exclusive_node(
    record: &AttachmentRecord,
    device: &ContainerDevice,
    host_root: &Path,
) -> bool {
    let sole_owner = [StepOwner::Device(device.device_ref())];
    let mut exclusive_rules = record.rules.iter().filter(|rule| rule.owners == sole_owner);
    exclusive_rules.any(|rule| rule.has_lost_host_node(host_root))
}

/// Revokes the stale rules of several containers without a change of their records. A container can
/// keep its lock for some time, and must not delay the revocation in the other containers. So this
/// function is called for all containers before [`revoke_stale_rules`], which reports the errors.
pub(crate) fn revoke_stale_rules_without_lock<'r>(
    containers: impl IntoIterator<Item = (&'r AttachmentRecord, &'r RemovedDevices)>,
    snapshot: &HostSnapshot,
    host_root: &Path,
) {
    for (record, removed_devices) in containers {
        let stale_rules = find_stale_rules(record, removed_devices, snapshot, host_root);
        if !stale_rules.is_empty() {
            let mut remaining_record = record.clone();
            remaining_record.remove_revoked_rules(&stale_rules);
            let _ = record.revoke_rules(&stale_rules, &remaining_record);
        }
    }
}

/// Returns the rules of a container that none of their owners needs any more.
fn find_stale_rules(
    record: &AttachmentRecord,
    removed_devices: &RemovedDevices,
    snapshot: &HostSnapshot,
    host_root: &Path,
) -> Vec<RecordedRule> {
    let owner_check = RuleOwnerCheck {
        record,
        removed_devices,
        snapshot,
        host_root,
    };
    let is_stale = |rule: &&RecordedRule| {
        let mut owners = rule.owners.iter();
        !rule.owners.is_empty() && !owners.any(|owner| owner_check.is_needed_by(owner, rule))
    };
    record.rules.iter().filter(is_stale).cloned().collect()
}

/// Revokes the stale rules of a container, and removes them from its record. A rule is stale if its
/// device was removed or has another number now. Returns whether a rule was revoked.
///
/// The container's lock is acquired after the revocation. Waits at most `lock_timeout` for it.
pub(crate) fn revoke_stale_rules(
    record: &AttachmentRecord,
    removed_devices: &RemovedDevices,
    snapshot: &HostSnapshot,
    lock_timeout: Duration,
    config: &Config,
) -> Result<bool, ContainerChangeError> {
    let host_root = &config.host_root;
    let stale_rules = find_stale_rules(record, removed_devices, snapshot, host_root);
    if stale_rules.is_empty() {
        update_host_nodes(record, snapshot, lock_timeout, host_root)?;
        return Ok(false);
    }
    let mut remaining_record = record.clone();
    remaining_record.remove_revoked_rules(&stale_rules);
    for warning in record.revoke_rules(&stale_rules, &remaining_record)? {
        log::warning(&format!("container {}: {warning}", record.id));
    }
    // The record is read again, because another process may have changed it before this process
    // acquired the lock.
    let record_file = LockedRecord::open(host_root, &record.id, lock_timeout)?;
    let updated_record = record_file.update(record, |current_record| {
        current_record.remove_revoked_rules(&stale_rules)
    })?;
    if let Some(current_record) = updated_record {
        // The previous holder of the lock may have read the record before the revocation, and may
        // have allowed the stale rules again.
        let reallowed_rules = current_record.find_allowed_rules(&stale_rules, &current_record);
        for warning in current_record.revoke_rules(&reallowed_rules, &current_record)? {
            log::warning(&format!("container {}: {warning}", record.id));
        }
    }
    // The lock is released before the messages are logged, because the logger looks up the names of
    // containers.
    drop(record_file);
    for rule in &stale_rules {
        let (id, owners) = (&record.id, rule.owners.iter());
        let owners: Vec<String> = owners.map(ToString::to_string).collect();
        let (rule, owners) = (rule.rule, owners.join(", "));
        log::log_service_action(&format!(
            "container {id}: {rule} is revoked: the host has {owners} no more, or elsewhere"
        ));
    }
    Ok(true)
}

/// The values that decide whether a device or a class of a container still needs a rule.
struct RuleOwnerCheck<'a> {
    record: &'a AttachmentRecord,
    removed_devices: &'a RemovedDevices,
    snapshot: &'a HostSnapshot,
    host_root: &'a Path,
}

impl RuleOwnerCheck<'_> {
    fn is_needed_by(&self, owner: &StepOwner, rule: &RecordedRule) -> bool {
        let device = match owner {
            StepOwner::Class(class) => return self.is_needed_by_class(class, rule),
            StepOwner::Device(device) => device,
        };
        let mut devices = self.record.devices.iter();
        // A detached device is no longer in the record. It needs no rule.
        let recorded_device = devices.find(|recorded_device| recorded_device.matches_owner(owner));
        !self.removed_devices.contains(device)
            && recorded_device
                .is_some_and(|recorded_device| self.is_needed_by_device(recorded_device, rule))
    }

    fn is_needed_by_device(&self, device: &ContainerDevice, rule: &RecordedRule) -> bool {
        let has_removed_owner = || {
            rule.owners
                .iter()
                .any(|owner| is_owner_removed(self.removed_devices, owner))
        };
        // The snapshot does not show the devices of a class that is unusable or lacks
        // `follow = true`. So the rule's node on the host is checked. If the class only lacks
        // `follow = true`, the check is needed only if a removed device needed the rule as well.
        let is_uncertain = match self.snapshot.has_device(device) {
            None => true,
            Some(_) => self.snapshot.is_unfollowed(&device.class) && has_removed_owner(),
        };
        let has_lost_host_node = is_uncertain && rule.has_lost_host_node(self.host_root);
        !has_lost_host_node
            && !self
                .snapshot
                .has_outdated_number(device, rule, self.host_root)
    }

    /// Reports whether a class still needs the rule for a node that all devices of the class share.
    fn is_needed_by_class(&self, class: &ClassName, rule: &RecordedRule) -> bool {
        let mut devices = self.record.devices.iter();
        let host_node = rule.host_node.as_ref();
        let has_changed_number =
            || host_node.is_some_and(|node| node.has_changed_number(self.host_root));
        devices.any(|device| device.class == *class)
            && (self.snapshot.is_unfollowed(class) || !has_changed_number())
    }
}

/// Records the new host nodes of devices that were unplugged and plugged in again with the same
/// number. After that, the rules of these devices refer to the new nodes.
fn update_host_nodes(
    record: &AttachmentRecord,
    snapshot: &HostSnapshot,
    lock_timeout: Duration,
    host_root: &Path,
) -> Result<(), ContainerChangeError> {
    let has_returned = |rule: &RecordedRule| {
        let devices = record.devices.iter();
        let mut devices = devices.filter(|device| {
            rule.owners
                .iter()
                .any(|owner| owner.is_device(&device.device_ref()))
        });
        rule.has_lost_host_node(host_root)
            && devices.any(|device| {
                snapshot.has_device(device) == Some(true)
                    && !snapshot.is_unfollowed(&device.class)
                    && !snapshot.has_outdated_number(device, rule, host_root)
            })
    };
    if !record.rules.iter().any(has_returned) {
        return Ok(());
    }
    let record_file = LockedRecord::open(host_root, &record.id, lock_timeout)?;
    record_file.update(record, |current_record| {
        for rule in current_record
            .rules
            .iter_mut()
            .filter(|rule| has_returned(rule))
        {
            rule.update_host_node(host_root);
        }
    })?;
    Ok(())
}

/// Removes the nodes and links of removed devices from a container. This works even if the class of
/// a removed device cannot be used.
pub(crate) fn remove_nodes(
    record: &AttachmentRecord,
    removed_devices: &RemovedDevices,
    config: &Config,
) -> Result<(), ContainerChangeError> {
    if removed_devices.is_empty() {
        return Ok(());
    }
    let record_file = LockedRecord::open(&config.host_root, &record.id, lock::FOLLOW_LOCK_TIMEOUT)?;
    let current_record = record_file.read()?;
    let Some(mut current_record) =
        current_record.filter(|current_record| current_record.is_from_same_start(record))
    else {
        return Ok(());
    };
    let original_record = current_record.clone();
    let belongs_to_removed_devices = |file: &CreatedFile| {
        let mut owners = file.owners.iter();
        file.is_node_or_link()
            && !file.owners.is_empty()
            && owners.all(|owner| is_owner_removed(removed_devices, owner))
    };
    let (removed_files, remaining_files) = current_record
        .files
        .drain(..)
        .partition(belongs_to_removed_devices);
    current_record.files = remaining_files;
    let removed_content = AttachmentRecord {
        files: removed_files,
        ..record.without_attachments()
    };
    remove_container_files(record, &removed_content)?;
    Ok(record_file.save_without_detached_devices(&original_record, &mut current_record)?)
}

//! Devices that the host has no more. Their rules are revoked before anything else is done: what
//! has such a number next is another device. The container's state does not matter for that, nor
//! do the container's other devices, its bundle or its request.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;

use super::host_snapshot::HostSnapshot;
use crate::live::attachment_record::{AttachedDevice, AttachmentRecord};
use crate::live::created_file::CreatedFile;
use crate::live::record_files::LockedRecord;
use crate::live::recorded_rule::RecordedRule;
use crate::live::{LiveError, detach, lock};
use crate::log;

/// The keys of a container's devices that the host has no more.
pub(super) type RemovedDevices = BTreeSet<String>;

pub(super) fn find_gone(
    record: &AttachmentRecord,
    sight: &HostSnapshot,
    root: &Path,
) -> RemovedDevices {
    let gone = record
        .devices
        .iter()
        .filter(|device| match sight.has(device) {
            Some(is_there) => !is_there,
            // The class file has a mistake or was removed: the host's nodes show it.
            None => has_other_node(record, device, root),
        });
    gone.map(AttachedDevice::key).collect()
}

/// Whether a node of the host's, for which the device has a rule of its own, is another now.
fn has_other_node(record: &AttachmentRecord, device: &AttachedDevice, root: &Path) -> bool {
    let key = [device.key()];
    let mut own = record.rules.iter().filter(|rule| rule.why == key);
    own.any(|rule| rule.host.as_ref().is_some_and(|host| host.is_gone(root)))
}

/// Whether the host's node of a rule is gone, or another one has its path.
fn has_no_node(rule: &RecordedRule, root: &Path) -> bool {
    rule.host.as_ref().is_some_and(|host| host.is_gone(root))
}

/// Revokes the rules of devices that are gone, and those for earlier numbers of devices. Returns
/// whether there were any.
pub(super) fn revoke_stale(
    record: &AttachmentRecord,
    gone: &RemovedDevices,
    sight: &HostSnapshot,
    config: &Config,
) -> Result<bool, LiveError> {
    let root = &config.host_root;
    let is_stale = |rule: &&RecordedRule| {
        let mut users = rule.why.iter();
        let is_for_none = users.all(|user| !needs(user, rule, record, gone, sight, root));
        !rule.why.is_empty() && is_for_none
    };
    let stale: Vec<RecordedRule> = record.rules.iter().filter(is_stale).cloned().collect();
    if stale.is_empty() {
        note_new_nodes(record, sight, root)?;
    }
    if stale.is_empty() {
        return Ok(false);
    }
    let mut left = record.clone();
    left.withdraw(&stale);
    for warning in record.revoke(&stale, &left)? {
        log::warning(&format!("container {}: {warning}", record.id));
    }
    // As it is while nobody else changes the container.
    let records = LockedRecord::open(root, &record.id, lock::LITTLE_PATIENCE)?;
    if let Some(mut known) = records.read()?
        && known.is_of_same_start(record)
    {
        known.withdraw(&stale);
        records.save(&known)?;
    }
    for rule in &stale {
        log::info(|| {
            let (id, rule, users) = (&record.id, &rule.rule, rule.why.join(", "));
            format!("container {id}: {rule} is revoked: the host has {users} no more, or elsewhere")
        });
    }
    Ok(true)
}

/// Whether a device or class of a container, by its key, needs a rule that is recorded for it.
fn needs(
    user: &str,
    rule: &RecordedRule,
    record: &AttachmentRecord,
    gone: &RemovedDevices,
    sight: &HostSnapshot,
    root: &Path,
) -> bool {
    if gone.contains(user) {
        return false;
    }
    let Some(device) = record.devices.iter().find(|device| device.key() == user) else {
        // The user is a class as such, or a device that was detached.
        let has_class = record.devices.iter().any(|device| device.class == user);
        let has_other_number = || {
            let host = rule.host.as_ref();
            host.is_some_and(|host| host.has_other_number(root))
        };
        return has_class && (sight.is_unfollowed_class(user) || !has_other_number());
    };
    // The class cannot be used; or it is not followed, and another device that shares the rule
    // is known to be gone.
    let is_unsure = match sight.has(device) {
        None => true,
        Some(_) => sight.is_unfollowed(device) && rule.why.iter().any(|key| gone.contains(key)),
    };
    let is_lost = is_unsure && has_no_node(rule, root);
    !is_lost && !sight.has_other_number(device, rule, root)
}

/// Notes the nodes of devices that came back with their numbers: they are others from now on.
fn note_new_nodes(
    record: &AttachmentRecord,
    sight: &HostSnapshot,
    root: &Path,
) -> Result<(), LiveError> {
    let is_back = |rule: &RecordedRule| {
        let mut its = record
            .devices
            .iter()
            .filter(|device| rule.why.contains(&device.key()));
        has_no_node(rule, root)
            && its.any(|device| {
                sight.has(device) == Some(true)
                    && !sight.is_unfollowed(device)
                    && !sight.has_other_number(device, rule, root)
            })
    };
    if !record.rules.iter().any(is_back) {
        return Ok(());
    }
    let records = LockedRecord::open(root, &record.id, lock::LITTLE_PATIENCE)?;
    if let Some(mut known) = records.read()?.filter(|it| it.is_of_same_start(record)) {
        for rule in known.rules.iter_mut().filter(|rule| is_back(rule)) {
            rule.host = rule.host.as_ref().and_then(|host| host.now(root));
        }
        records.save(&known)?;
    }
    Ok(())
}

/// Removes the nodes and links of devices that are gone, if nothing else can be done for the
/// container.
pub(super) fn remove_nodes(
    record: &AttachmentRecord,
    gone: &RemovedDevices,
    config: &Config,
) -> Result<(), LiveError> {
    if gone.is_empty() {
        return Ok(());
    }
    let records = LockedRecord::open(&config.host_root, &record.id, lock::LITTLE_PATIENCE)?;
    let Some(mut known) = records.read()?.filter(|it| it.is_of_same_start(record)) else {
        return Ok(());
    };
    let is_gone = |made: &CreatedFile| {
        let is_theirs = !made.why.is_empty() && made.why.iter().all(|key| gone.contains(key));
        made.is_node_or_link() && is_theirs
    };
    let (made, left) = known.made.drain(..).partition(is_gone);
    known.made = left;
    let taken = AttachmentRecord {
        made,
        ..record.identity()
    };
    detach::remove(record, &taken)?;
    Ok(records.save(&known)?)
}

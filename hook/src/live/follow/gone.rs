//! Devices that the host has no more. Their rules are revoked before anything else is done: what
//! has such a number next is another device. The container's state does not matter for that, nor
//! do the container's other devices, its bundle or its request.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;

use super::sight::Sight;
use crate::live::made::Made;
use crate::live::record::{Device, Record};
use crate::live::records::Records;
use crate::live::rule::Rule;
use crate::live::{LiveError, detach, lock};
use crate::log;

/// The keys of a container's devices that the host has no more.
pub(super) type Gone = BTreeSet<String>;

pub(super) fn find_gone(record: &Record, sight: &Sight, root: &Path) -> Gone {
    let gone = record
        .devices
        .iter()
        .filter(|device| match sight.has(device) {
            Some(is_there) => !is_there,
            // The class file has a mistake or was removed: the host's nodes show it.
            None => has_other_node(record, device, root),
        });
    gone.map(Device::key).collect()
}

/// Whether a node of the host's, for which the device has a rule of its own, is another now.
fn has_other_node(record: &Record, device: &Device, root: &Path) -> bool {
    let key = [device.key()];
    let mut own = record.rules.iter().filter(|rule| rule.why == key);
    own.any(|rule| rule.host.as_ref().is_some_and(|host| host.is_gone(root)))
}

/// Revokes the rules of devices that are gone, and those for earlier numbers of devices. Returns
/// whether there were any.
pub(super) fn revoke_stale(
    record: &Record,
    gone: &Gone,
    sight: &Sight,
    config: &Config,
) -> Result<bool, LiveError> {
    let root = &config.host_root;
    let is_stale = |rule: &&Rule| {
        let is_for = |key: &String| {
            let device = record.devices.iter().find(|device| device.key() == *key);
            !gone.contains(key)
                && device.is_none_or(|device| !sight.has_other_number(device, rule, root))
        };
        !rule.why.is_empty() && !rule.why.iter().any(is_for)
    };
    let stale: Vec<Rule> = record.rules.iter().filter(is_stale).cloned().collect();
    if stale.is_empty() {
        return Ok(false);
    }
    let mut left = record.clone();
    left.withdraw(&stale);
    for warning in record.revoke(&stale, &left)? {
        log::warning(&format!("container {}: {warning}", record.id));
    }
    // As it is while nobody else changes the container.
    let records = Records::open(root, &record.id, lock::LITTLE_PATIENCE)?;
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

/// Removes the nodes and links of devices that are gone, if nothing else can be done for the
/// container.
pub(super) fn remove_nodes(record: &Record, gone: &Gone, config: &Config) -> Result<(), LiveError> {
    if gone.is_empty() {
        return Ok(());
    }
    let records = Records::open(&config.host_root, &record.id, lock::LITTLE_PATIENCE)?;
    let Some(mut known) = records.read()?.filter(|it| it.is_of_same_start(record)) else {
        return Ok(());
    };
    let is_gone = |made: &Made| {
        let is_theirs = !made.why.is_empty() && made.why.iter().all(|key| gone.contains(key));
        made.is_node_or_link() && is_theirs
    };
    let (made, left) = known.made.drain(..).partition(is_gone);
    known.made = left;
    let taken = Record {
        made,
        ..record.identity()
    };
    detach::remove(record, &taken)?;
    Ok(records.save(&known)?)
}

//! Detaching: what attaching added is taken away, and nothing else.
//!
//! The device rules are revoked first, by the record alone ([`super::revoke`]). Then what was
//! made in the container's root is removed; that needs its mount namespace, which the container
//! can make unusable.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::device::DeviceRule;
use injection_plan::request::split_list;

use super::attachment_record::{AttachedDevice, AttachmentRecord};
use super::follow::{self, DeviceChange};
use super::open_by::{self, OpenBy};
use super::record_files::{self, LockedRecord};
use super::recorded_rule::{RecordedRule, parsed};
use super::{LiveError, OpenContainer, in_child, lock, require_root, try_twice};
use crate::container::ContainerRoot;
use crate::oci::{Attached, Bundle, CdiGrant};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};

/// What was taken away.
#[derive(Default)]
pub(crate) struct Detached {
    pub(crate) devices: Vec<AttachedDevice>,
    /// Whether what was left in the container of devices that were detached before is removed.
    pub(crate) removed_rest: bool,
    /// Why device nodes and files stay in the container's mount namespace.
    pub(crate) not_removed: Option<LiveError>,
    pub(crate) warnings: Vec<String>,
    /// Processes that opened a device before, and can use it as long as they have it open.
    pub(crate) open_by: Vec<OpenBy>,
}

/// Takes devices away from the container `id`, whose bundle is one that `is_its` accepts; without
/// any named, all that were attached.
pub(crate) fn detach(
    id: &str,
    is_its: impl Fn(&Path) -> bool,
    named: &[CdiGrant],
    config: &Config,
) -> Result<Detached, LiveError> {
    require_root()?;
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    // A process that does not end may have the lock for ever: the rules are revoked without it.
    let records = LockedRecord::open(&config.host_root, id, lock::PATIENCE);
    let record = match &records {
        Ok(records) => records.read()?,
        Err(_) => record_files::find(&config.host_root, id)?,
    };
    let record = record.filter(|record| !record.has_ended() && is_its(&record.bundle));
    Stage::Planning.begin();
    let Some(record) = record else {
        return match named.first() {
            Some(grant) => Err(not_attached(
                grant,
                &grant.device,
                &AttachmentRecord::default(),
            )),
            None => Ok(Detached::default()),
        };
    };
    let named = find_named(&record, named, config)?;
    let mut left = record.clone();
    let taken = left.take(|device| named.contains(&device.key()));
    if !taken.has_content() {
        return Ok(Detached::default());
    }
    Stage::Rules.begin();
    let warnings = match record.revoke(&taken.rules, &left) {
        Ok(warnings) => warnings,
        Err(error) => {
            let allowed = record.still_allowed(&taken.rules, &left);
            let is_revoked =
                |rule: &RecordedRule| taken.rules.contains(rule) && !allowed.contains(rule);
            let mut record = record;
            record.rules.retain(|rule| !is_revoked(rule));
            records?.save(&record)?;
            return Err(error);
        }
    };
    deadline.cancel();
    left.withdraw(&taken.rules);
    let mut with_rest = left.clone();
    with_rest.add(Vec::new(), Vec::new(), taken.made.clone());
    let records = records.map_err(|error| {
        // Once the lock is free, `follow` must not give back what was revoked.
        let _ = record_files::save_without_lock(&config.host_root, &with_rest);
        LiveError::OnlyRevoked(error)
    })?;
    records.save(&with_rest).map_err(LiveError::OnlyRevoked)?;
    let not_removed = match remove(&record, &taken) {
        Err(error) if !record.has_ended() => Some(error),
        _ => {
            records.save(&left).map_err(LiveError::OnlyRevoked)?;
            None
        }
    };
    drop(records);
    let open_by = open_by::find(&record, &parsed(&taken.rules));
    follow::tell_of(&taken, DeviceChange::Detached, config);
    Ok(Detached {
        removed_rest: taken.devices.is_empty(),
        devices: taken.devices,
        not_removed,
        warnings,
        open_by,
    })
}

/// The keys of the attached devices that the user named; without a name, of all.
fn find_named(
    record: &AttachmentRecord,
    named: &[CdiGrant],
    config: &Config,
) -> Result<BTreeSet<String>, LiveError> {
    let attached = || record.devices.iter().filter(|it| it.asked.is_user());
    let mut keys: BTreeSet<String> = BTreeSet::new();
    if named.is_empty() {
        keys.extend(attached().map(AttachedDevice::key));
    }
    for grant in named {
        let find = |name: &str| -> Vec<String> {
            let its = attached().filter(|device| grant.class.as_str() == device.class);
            let its: Vec<&AttachedDevice> = its.collect();
            let keys = |is_meant: &dyn Fn(&AttachedDevice) -> bool| -> Vec<String> {
                let meant = its.iter().filter(|device| is_meant(device));
                meant.map(|device| device.key()).collect()
            };
            let by_id = keys(&|device| device.device == name);
            match by_id.is_empty() {
                // As the user named it when it was attached.
                true => keys(&|device| device.asked.devices() == name || name == "all"),
                false => by_id,
            }
        };
        let whole = find(&grant.device);
        if !whole.is_empty() {
            keys.extend(whole);
            continue;
        }
        for item in split_list(&grant.device).unwrap_or_default() {
            let is_word = item.text != "all" || !item.is_quoted;
            let mut found = match is_word {
                true => find(&item.text),
                false => Vec::new(),
            };
            if found.is_empty() {
                // It may be named otherwise than it was attached.
                let written = match item.is_quoted {
                    true => format!("\"{}\"", item.text.replace('"', "\"\"")),
                    false => item.text.clone(),
                };
                let ids = find_ids(record, grant, written, config);
                found = ids.iter().flat_map(|id| find(id)).collect();
            }
            if found.is_empty() {
                return Err(not_attached(grant, &item.text, record));
            }
            keys.extend(found);
        }
    }
    Ok(keys)
}

fn not_attached(grant: &CdiGrant, name: &str, record: &AttachmentRecord) -> LiveError {
    let attached = record.devices.iter().filter(|it| it.asked.is_user());
    let attached: Vec<String> = attached
        .map(|device| format!("{}={}", device.class, device.device))
        .collect();
    LiveError::NotAttached(format!(
        "{}={name} is not attached to it; {}",
        grant.class,
        match attached.is_empty() {
            true => "nothing is; a device that it was started with stays".to_owned(),
            false => format!("attached are {}", attached.join(", ")),
        }
    ))
}

/// The ids of devices by one of their names, if this host has the devices.
fn find_ids(
    record: &AttachmentRecord,
    grant: &CdiGrant,
    name: String,
    config: &Config,
) -> Vec<String> {
    let plan = || {
        let mut bundle = Bundle::read(&record.bundle).ok()?;
        let grant = CdiGrant {
            device: name,
            ..grant.clone()
        };
        bundle.attached = vec![Attached {
            grant,
            forced: true,
        }];
        planner::plan_for(&bundle, &Caller::Attach, config).ok()
    };
    let grants = plan().map(|plan| plan.grants).unwrap_or_default();
    let attached = grants.into_iter().filter(|it| it.given_by.is_user());
    attached.flat_map(|it| it.devices).collect()
}

/// Removes what was made in the root of a container. A child does, so that a file system that does
/// not answer keeps nobody waiting.
pub(super) fn remove(
    container: &AttachmentRecord,
    taken: &AttachmentRecord,
) -> Result<(), LiveError> {
    if taken.made.is_empty() {
        return Ok(());
    }
    let removed = in_child(|_| undo_in(&OpenContainer::open(&container.found())?, taken));
    removed.map(drop)
}

/// The same in a container that is open.
pub(super) fn remove_in(
    container: &OpenContainer,
    taken: &AttachmentRecord,
) -> Result<(), LiveError> {
    in_child(|_| undo_in(container, taken)).map(drop)
}

/// Enters a container, for good, and takes all of a record out of its root.
fn undo_in(container: &OpenContainer, taken: &AttachmentRecord) -> Result<(), LiveError> {
    Stage::Container.begin();
    let root = container.enter()?;
    try_twice(|| undo(taken, &root))
}

/// Takes all of a record out of a container's root: as much as possible, and the first fault.
pub(super) fn undo(record: &AttachmentRecord, root: &ContainerRoot) -> Result<(), LiveError> {
    let undone = record.made.iter().rev().map(|made| made.undo(root));
    let faults: Vec<LiveError> = undone.filter_map(Result::err).collect();
    faults.into_iter().next().map_or(Ok(()), Err)
}

pub(super) fn rules(record: &AttachmentRecord) -> Vec<DeviceRule> {
    parsed(&record.rules)
}

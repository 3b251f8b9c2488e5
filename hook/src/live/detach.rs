//! `boathook detach`: takes attached devices away from a container that runs.
//!
//! The device rules are revoked first, which needs the record alone ([`super::revoke`]). Then the
//! files are removed from the container's root, for which its mount namespace must be entered. The
//! container can make that impossible.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use device_class::config::Config;
use device_class::name::{DeviceId, DeviceRef};
use injection_plan::request::{DeviceList, Item};

use crate::live::LiveError;
use crate::live::announce::{DeviceChange, announce_devices};
use crate::live::container::{
    lock, open_by, open_by::OpenBy, record_files, record_files::LockedRecord, require_root,
};
use crate::live::reconcile::remove_files_of;
use crate::live::record::{
    AttachedDevice, AttachmentRecord, AwaitedDevice, RecordedRule, device_rules,
};
use crate::log;
use crate::oci::{AttachRequest, Bundle, CdiGrant};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};

/// The result of detaching devices.
#[derive(Default)]
pub(crate) struct Detached {
    pub(crate) devices: Vec<AttachedDevice>,
    /// The devices that the container does not wait for any more.
    pub(crate) waiting: Vec<AwaitedDevice>,
    /// Whether files were removed that an earlier `detach` could not remove.
    pub(crate) removed_rest: bool,
    /// The reason for which device nodes and files stay in the container's mount namespace.
    pub(crate) not_removed: Option<LiveError>,
    pub(crate) warnings: Vec<String>,
    /// The processes that have a detached device open. They can use it until they close it.
    pub(crate) open_by: Vec<OpenBy>,
}

/// Detaches devices from the container `id`, if `accepts_bundle` accepts the directory of its
/// bundle. Without any `named`, detaches all that were attached.
pub(crate) fn detach(
    id: &str,
    accepts_bundle: impl Fn(&Path) -> bool,
    named: &[CdiGrant],
    config: &Config,
) -> Result<Detached, LiveError> {
    require_root()?;
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    // Another process may hold the lock and never end. Then the rules are revoked without it.
    let record_file = LockedRecord::open(&config.host_root, id, lock::COMMAND_LIMIT);
    let record = match &record_file {
        Ok(record_file) => record_file.read()?,
        Err(_) => record_files::find(&config.host_root, id)?,
    };
    let record = record.filter(|record| !record.has_ended() && accepts_bundle(&record.bundle));
    Stage::Planning.begin();
    let Some(record) = record else {
        return match named.first() {
            Some(grant) => Err(not_attached(
                grant,
                grant.devices.as_str(),
                &AttachmentRecord::default(),
            )),
            None => Ok(Detached::default()),
        };
    };
    let (devices, not_awaited) = find_named(&record, named, config)?;
    let mut left = record.clone();
    let mut taken = left.take(|device| devices.contains(&device.device_ref()));
    left.end_waiting(&not_awaited, &taken.devices);
    taken.waiting = not_awaited;
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
            let saved = match &record_file {
                Ok(record_file) => record_file.save(&record),
                Err(_) => record_files::save_without_lock(&config.host_root, &record),
            };
            warn_if_not_saved(id, saved);
            return Err(error);
        }
    };
    deadline.cancel();
    left.remove_revoked(&taken.rules);
    let mut with_files = left.clone();
    with_files.add(Vec::new(), Vec::new(), taken.files.clone());
    let record_file = record_file.map_err(|error| {
        // When the lock is released, `follow` must not set the revoked rules again.
        let saved = record_files::save_without_lock(&config.host_root, &with_files);
        warn_if_not_saved(id, saved);
        LiveError::OnlyRevoked(error)
    })?;
    record_file
        .save(&with_files)
        .map_err(LiveError::OnlyRevoked)?;
    let not_removed = match remove_files_of(&record, &taken) {
        Err(error) if !record.has_ended() => Some(error),
        _ => {
            record_file.merge_detached(&with_files, &mut left);
            record_file.save(&left).map_err(LiveError::OnlyRevoked)?;
            None
        }
    };
    drop(record_file);
    let open_by = open_by::find(&record, &device_rules(&taken.rules));
    announce_devices(&taken, DeviceChange::Detached, config);
    Ok(Detached {
        removed_rest: taken.devices.is_empty() && taken.waiting.is_empty(),
        devices: taken.devices,
        waiting: taken.waiting,
        not_removed,
        warnings,
        open_by,
    })
}

fn warn_if_not_saved(id: &str, saved: io::Result<()>) {
    if let Err(error) = saved {
        log::warning(&format!(
            "container {id}: `follow` may set the revoked rules again: {error}"
        ));
    }
}

impl AttachmentRecord {
    /// Ends the waiting for `ended`, and for devices that came later and were detached.
    fn end_waiting(&mut self, ended: &[AwaitedDevice], detached: &[AttachedDevice]) {
        self.waiting.retain(|awaited| !ended.contains(awaited));
        for awaited in self.waiting.iter_mut().filter(|it| it.is_for_all()) {
            let late = detached.iter().filter(|it| it.class == awaited.class);
            for device in late.map(|it| &it.device) {
                if !awaited.detached.contains(device) {
                    awaited.detached.push(device.clone());
                }
            }
        }
    }
}

/// Returns the attached devices that the user named, and what the container is not to
/// wait for any more; or all without a name.
fn find_named(
    record: &AttachmentRecord,
    named: &[CdiGrant],
    config: &Config,
) -> Result<(BTreeSet<DeviceRef>, Vec<AwaitedDevice>), LiveError> {
    let (mut devices, mut awaited) = (BTreeSet::new(), Vec::new());
    if named.is_empty() {
        let attached = record.devices.iter().filter(|it| it.is_detachable());
        devices.extend(attached.map(AttachedDevice::device_ref));
        awaited.clone_from(&record.waiting);
    }
    for grant in named {
        // The whole text may be one device's name or the words with which it was attached.
        let whole = find_attached(record, grant, grant.devices.as_str());
        if !whole.is_empty() && grant.devices.as_str() != "all" {
            devices.extend(whole);
            continue;
        }
        for item in grant.devices.items() {
            let may_be_word = item.text != "all" || !item.is_quoted;
            let mut found = if may_be_word {
                find_attached(record, grant, &item.text)
            } else {
                Vec::new()
            };
            if found.is_empty() {
                // The device may have been attached by another of its names.
                let ids = find_ids(record, grant, item, config);
                found = ids
                    .iter()
                    .flat_map(|id| find_attached(record, grant, id.as_str()))
                    .collect();
            }
            let of_class = record.waiting.iter();
            let of_class = of_class.filter(|it| it.class == grant.class);
            let ended: Vec<_> = of_class.filter(|it| it.is_named(item)).cloned().collect();
            if found.is_empty() && ended.is_empty() {
                return Err(not_attached(grant, &item.text, record));
            }
            devices.extend(found);
            awaited.extend(ended);
        }
    }
    Ok((devices, awaited))
}

/// Returns the attached devices of the grant's class that have this id. Without any,
/// returns those that were attached by this name.
fn find_attached(record: &AttachmentRecord, grant: &CdiGrant, name: &str) -> Vec<DeviceRef> {
    let attached = record
        .devices
        .iter()
        .filter(|device| device.is_detachable() && device.class == grant.class);
    let (mut by_id, mut by_name) = (Vec::new(), Vec::new());
    for device in attached {
        if device.device.as_str() == name || device.label() == name {
            by_id.push(device.device_ref());
        } else if device.given_by.devices() == name
            || name == "all"
            || device.late && device.has_name(name)
        {
            by_name.push(device.device_ref());
        }
    }
    if by_id.is_empty() { by_name } else { by_id }
}

fn not_attached(grant: &CdiGrant, name: &str, record: &AttachmentRecord) -> LiveError {
    let attached = record.devices.iter().filter(|it| it.is_detachable());
    let attached = attached.map(|device| format!("{}={}", device.class, device.label()));
    let awaited = record.waiting.iter();
    let awaited = awaited.map(|it| format!("{}={}", it.class, it.awaited.to_request()));
    let attached: Vec<String> = attached.chain(awaited).collect();
    let attached = if attached.is_empty() {
        "nothing is; a device that it was started with stays".to_owned()
    } else {
        format!("attached are {}", attached.join(", "))
    };
    let class = &grant.class;
    LiveError::NotAttached(format!("{class}={name} is not attached to it; {attached}"))
}

/// Returns the ids of the devices that a name means on this host now. Returns none if the name
/// means nothing or the host does not have the devices.
fn find_ids(
    record: &AttachmentRecord,
    grant: &CdiGrant,
    item: &Item,
    config: &Config,
) -> Vec<DeviceId> {
    let Ok(mut bundle) = Bundle::read(&record.bundle) else {
        return Vec::new();
    };
    let grant = CdiGrant {
        devices: DeviceList::from_item(item.without_suffix()),
        ..grant.clone()
    };
    bundle.attached = vec![AttachRequest {
        grant,
        forced: true,
    }];
    let plan = planner::plan_for(&bundle, &Caller::Attach, config);
    let grants = plan.map_or_else(|_| Vec::new(), |plan| plan.grants);
    let attached = grants.into_iter().filter(|it| it.given_by.is_user());
    attached.flat_map(|grant| grant.devices).collect()
}

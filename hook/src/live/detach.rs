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
    device_holders::{DeviceHolder, find_device_holders},
    lock, record_files,
    record_files::LockedRecord,
    require_root,
};
use crate::live::reconcile::remove_container_files;
use crate::live::record::{
    AttachedDevice, AttachmentRecord, AwaitedRequest, CreatedFile, to_device_rules,
};
use crate::log;
use crate::oci::{AttachRequest, Bundle, CdiGrant};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};

/// The result of detaching devices.
#[derive(Default)]
pub(crate) struct DetachResult {
    pub(crate) devices: Vec<AttachedDevice>,
    /// The requests whose devices the container does not wait for any more.
    pub(crate) ended_requests: Vec<AwaitedRequest>,
    /// Whether files were removed that an earlier `detach` could not remove.
    pub(crate) has_removed_remaining_files: bool,
    /// The reason for which device nodes and files stay in the container's mount namespace.
    pub(crate) not_removed: Option<LiveError>,
    pub(crate) warnings: Vec<String>,
    /// The processes that have a detached device open. They can use it until they close it.
    pub(crate) holders: Vec<DeviceHolder>,
}

/// Detaches devices from the container `id`, if `accepts_bundle` accepts the directory of its
/// bundle. Without any `named`, detaches all that were attached.
pub(crate) fn detach(
    id: &str,
    accepts_bundle: impl Fn(&Path) -> bool,
    named: &[CdiGrant],
    config: &Config,
) -> Result<DetachResult, LiveError> {
    require_root()?;
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    // Another process may hold the lock and never end. Then the rules are revoked without the lock.
    let record_file = LockedRecord::open(&config.host_root, id, lock::COMMAND_LIMIT);
    let record = match &record_file {
        Ok(record_file) => record_file.read()?,
        Err(_) => record_files::find_record(&config.host_root, id)?,
    };
    let record = record.filter(|record| !record.has_ended() && accepts_bundle(&record.bundle));
    Stage::Planning.begin();
    let Some(record) = record else {
        return match named.first() {
            Some(grant) => Err(not_attached_error(
                grant,
                grant.devices.as_str(),
                &AttachmentRecord::default(),
            )),
            None => Ok(DetachResult::default()),
        };
    };
    let (devices, ended_requests) = find_named_devices(&record, named, config)?;
    let mut kept = record.clone();
    let mut taken = kept.remove_devices(|device| devices.contains(&device.device_ref()));
    kept.end_requests(&ended_requests, &taken.devices);
    taken.awaited_requests = ended_requests;
    if !taken.has_content() {
        return Ok(DetachResult::default());
    }
    Stage::Rules.begin();
    let warnings = match record.revoke(&taken.rules, &kept) {
        Ok(warnings) => warnings,
        Err(error) => {
            let allowed = record.find_still_allowed(&taken.rules, &kept);
            let mut revoked = taken.rules;
            revoked.retain(|rule| !allowed.contains(rule));
            let change = |current: &mut AttachmentRecord| current.remove_revoked(&revoked);
            let saved = record_files::update_without_lock(&config.host_root, &record, change);
            warn_if_not_saved(id, saved);
            return Err(error);
        }
    };
    deadline.cancel();
    // The files stay recorded until they are removed.
    let keep_files = |current: &mut AttachmentRecord| {
        current.remove_devices(|device| devices.contains(&device.device_ref()));
        current.end_requests(&taken.awaited_requests, &taken.devices);
        current.remove_revoked(&taken.rules);
        current.add_content(Vec::new(), Vec::new(), taken.files.clone());
    };
    let record_file = record_file.map_err(|error| {
        // When the lock is released, `follow` must not set the revoked rules again.
        let saved = record_files::update_without_lock(&config.host_root, &record, keep_files);
        warn_if_not_saved(id, saved);
        // The process that has the lock may have allowed them again, by the record as it was.
        if let Err(error) = record.revoke(&taken.rules, &kept) {
            log::warning(&format!("container {id}: {}", log::chain(&error)));
        }
        LiveError::FilesRemain(error)
    })?;
    let with_files = record_file
        .update(&record, keep_files)
        .map_err(LiveError::FilesRemain)?;
    let not_removed = match remove_container_files(&record, &taken) {
        Err(error) if !record.has_ended() => Some(error),
        _ => {
            if let Some(with_files) = with_files {
                let mut without_files = with_files.clone();
                let is_kept = |file: &CreatedFile| !taken.files.contains(file);
                without_files.files.retain(is_kept);
                record_file
                    .save_merged(&with_files, &mut without_files)
                    .map_err(LiveError::FilesRemain)?;
            }
            None
        }
    };
    drop(record_file);
    let holders = find_device_holders(&record, &to_device_rules(&taken.rules));
    announce_devices(&taken, DeviceChange::Detached, config);
    Ok(DetachResult {
        has_removed_remaining_files: taken.devices.is_empty() && taken.awaited_requests.is_empty(),
        devices: taken.devices,
        ended_requests: taken.awaited_requests,
        not_removed,
        warnings,
        holders,
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
    /// Moves `ended` from the awaited to the ended requests, and notes in the others which
    /// devices came after the container's start and were detached, so that they are not given again.
    fn end_requests(&mut self, ended: &[AwaitedRequest], detached: &[AttachedDevice]) {
        self.awaited_requests
            .retain(|awaited| !ended.contains(awaited));
        self.ended_requests.extend(ended.iter().cloned());
        for awaited in self
            .awaited_requests
            .iter_mut()
            .filter(|it| it.is_for_all())
        {
            let late = detached.iter().filter(|it| it.class == awaited.class);
            for device in late.map(|it| &it.device) {
                if !awaited.detached.contains(device) {
                    awaited.detached.push(device.clone());
                }
            }
        }
        // A device that is awaited no longer by its name or by `all` is not given again.
        let is_awaited = |device: &AttachedDevice| {
            let mut waiting = self.awaited_requests.iter();
            waiting.any(|awaited| awaited.class == device.class && awaited.is_for_all())
        };
        let late = detached.iter().filter(|it| it.late && !is_awaited(it));
        let late: Vec<_> = late.map(AwaitedRequest::from_late).collect();
        self.ended_requests.extend(late);
    }
}

/// Returns the attached devices that the user named, and the awaited requests that end. If the user
/// named nothing, returns all of both.
fn find_named_devices(
    record: &AttachmentRecord,
    named: &[CdiGrant],
    config: &Config,
) -> Result<(BTreeSet<DeviceRef>, Vec<AwaitedRequest>), LiveError> {
    let (mut devices, mut awaited) = (BTreeSet::new(), Vec::new());
    if named.is_empty() {
        let attached = record.devices.iter().filter(|it| it.is_detachable());
        devices.extend(attached.map(AttachedDevice::device_ref));
        awaited.clone_from(&record.awaited_requests);
    }
    for grant in named {
        // The whole text may be one device's name or the words with which it was attached.
        let whole = find_attached_devices(record, grant, grant.devices.as_str());
        if !whole.is_empty() && grant.devices.as_str() != "all" {
            devices.extend(whole);
            continue;
        }
        for item in grant.devices.items() {
            let may_be_word = item.text != "all" || !item.is_quoted;
            let mut found = if may_be_word {
                find_attached_devices(record, grant, &item.text)
            } else {
                Vec::new()
            };
            if found.is_empty() {
                // The device may have been attached by another of its names.
                let ids = find_host_ids(record, grant, item, config);
                found = ids
                    .iter()
                    .flat_map(|id| find_attached_devices(record, grant, id.as_str()))
                    .collect();
            }
            let awaited_of_class = record
                .awaited_requests
                .iter()
                .filter(|request| request.class == grant.class);
            let ended: Vec<_> = awaited_of_class
                .filter(|it| it.matches_item(item))
                .cloned()
                .collect();
            if found.is_empty() && ended.is_empty() {
                return Err(not_attached_error(grant, &item.text, record));
            }
            devices.extend(found);
            awaited.extend(ended);
        }
    }
    Ok((devices, awaited))
}

/// Returns the attached devices of the grant's class that have this id. If there are none, returns
/// the devices that were attached by this name.
fn find_attached_devices(
    record: &AttachmentRecord,
    grant: &CdiGrant,
    name: &str,
) -> Vec<DeviceRef> {
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

fn not_attached_error(grant: &CdiGrant, name: &str, record: &AttachmentRecord) -> LiveError {
    let attached = record.devices.iter().filter(|it| it.is_detachable());
    let attached = attached.map(|device| format!("{}={}", device.class, device.label()));
    let awaited = record.awaited_requests.iter();
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

/// Returns the ids of the devices to which a name leads on this host now. The list is empty if the
/// name is unknown or the host does not have the devices.
fn find_host_ids(
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

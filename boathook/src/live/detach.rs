//! `boathook detach`: takes attached devices away from a running container.
//!
//! First the device rules are revoked. This needs only the attachment record and the cgroup. Then a
//! child process enters the container's mount namespace and removes the files of the devices. The
//! container can prevent the second step, but not the first.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use device_class::config::Config;
use device_class::name::{DeviceId, DeviceRef};
use hook::attachment::{
    AttachmentRecord, AwaitedRequest, ContainerDevice, CreatedFile, LockedRecord, lock,
    record_files, to_device_rules,
};
use hook::log;
use hook::oci::{AttachRequest, Bundle, CdiGrant};
use hook::planner::{self, Caller};
use hook::sys::deadline::{self, Deadline, Stage};
use injection_plan::request::{DeviceList, DeviceListItem};

use crate::live::ContainerChangeError;
use crate::live::announce::{DeviceChange, announce_devices};
use crate::live::container::{
    device_holders::{DeviceHolder, find_device_holders},
    require_root,
};
use crate::live::reconcile::remove_detached_files;

/// The result of `boathook detach`: the changes of the container, and those that failed.
#[derive(Default)]
pub(crate) struct DetachResult {
    pub devices: Vec<ContainerDevice>,
    /// The cancelled requests that have no device in `devices`, because the container never got
    /// their device or lost it. If the host gets such a device later, the device is not added to
    /// the container.
    pub cancelled_requests: Vec<AwaitedRequest>,
    /// True if this call removed files that an earlier `detach` could not remove.
    pub has_removed_leftover_files: bool,
    /// The reason why the device nodes and files could not be removed from the container. `None`
    /// means that no error occurred.
    pub removal_error: Option<ContainerChangeError>,
    pub warnings: Vec<String>,
    /// The processes that have a detached device open. They can use the device until they close it.
    pub holders: Vec<DeviceHolder>,
}

/// Detaches `requested_devices` from the container `id`. If `requested_devices` is empty, detaches
/// all attached devices. Another container may have the same id, so `accepts_bundle` gets the
/// recorded bundle directory and reports whether it belongs to the right container.
pub(crate) fn detach(
    id: &str,
    accepts_bundle: impl Fn(&Path) -> bool,
    requested_devices: &[CdiGrant],
    config: &Config,
) -> Result<DetachResult, ContainerChangeError> {
    require_root()?;
    let deadline =
        Deadline::start(deadline::DEADLINE_SECONDS).map_err(ContainerChangeError::Fork)?;
    // Another process may hold the container's lock forever. In this case the rules are revoked
    // without the lock.
    let record_file = LockedRecord::open(&config.host_root, id, lock::COMMAND_LOCK_TIMEOUT);
    let record = match &record_file {
        Ok(record_file) => record_file.read()?,
        Err(_) => record_files::find_record(&config.host_root, id)?,
    };
    let record = record.filter(|record| !record.has_ended() && accepts_bundle(&record.bundle_dir));
    Stage::Planning.begin();
    let Some(record) = record else {
        return match requested_devices.first() {
            Some(grant) => Err(not_attached_error(
                grant,
                grant.devices.as_str(),
                &AttachmentRecord::default(),
            )),
            None => Ok(DetachResult::default()),
        };
    };
    let (devices, cancelled_requests) = find_requested_devices(&record, requested_devices, config)?;
    let mut remaining_record = record.clone();
    let mut detached_record =
        remaining_record.remove_devices(|device| devices.contains(&device.device_ref()));
    remaining_record.cancel_requests(&cancelled_requests, &detached_record.devices);
    detached_record.awaited_requests = cancelled_requests;
    if !detached_record.has_content() {
        return Ok(DetachResult::default());
    }
    Stage::SettingRules.begin();
    let mut warnings = match record.revoke_rules(&detached_record.rules, &remaining_record) {
        Ok(warnings) => warnings,
        Err(error) => {
            let still_allowed_rules =
                record.find_allowed_rules(&detached_record.rules, &remaining_record);
            let mut revoked_rules = detached_record.rules;
            revoked_rules.retain(|rule| !still_allowed_rules.contains(rule));
            let remove_revoked_rules =
                |record: &mut AttachmentRecord| record.remove_revoked_rules(&revoked_rules);
            let save_result = record_files::update_record_without_lock(
                &config.host_root,
                &record,
                remove_revoked_rules,
            );
            warn_if_not_saved(id, save_result);
            return Err(error.into());
        }
    };
    deadline.cancel();
    // Removes the devices and rules from a record. The record keeps the files until they are
    // removed from the container.
    let detach_without_files = |record: &mut AttachmentRecord| {
        record.remove_devices(|device| devices.contains(&device.device_ref()));
        record.cancel_requests(&detached_record.awaited_requests, &detached_record.devices);
        record.remove_revoked_rules(&detached_record.rules);
        record.add_attachments(Vec::new(), Vec::new(), detached_record.files.clone());
    };
    let record_file = record_file.map_err(|error| {
        // The record could not be locked. Its rules are removed nevertheless, so that
        // `boathook follow` does not allow them again.
        let save_result = record_files::update_record_without_lock(
            &config.host_root,
            &record,
            detach_without_files,
        );
        warn_if_not_saved(id, save_result);
        // The process that holds the lock read the record before this change, and may have allowed
        // the rules again. So the rules are revoked once more.
        if let Err(error) = record.revoke_rules(&detached_record.rules, &remaining_record) {
            log::warning(&format!(
                "container {id}: {}",
                log::format_error_chain(&error)
            ));
        }
        ContainerChangeError::FilesRemain(error)
    })?;
    let record_with_files = record_file
        .update(&record, detach_without_files)
        .map_err(ContainerChangeError::FilesRemain)?;
    let removal = remove_detached_files(&record, &detached_record, &remaining_record, config);
    let removal_error = match removal {
        Err(error) if !record.has_ended() => Some(error),
        removal => {
            warnings.extend(removal.unwrap_or_default());
            if let Some(record_with_files) = record_with_files {
                let mut record_without_files = record_with_files.clone();
                let is_remaining = |file: &CreatedFile| !detached_record.files.contains(file);
                record_without_files.files.retain(is_remaining);
                record_file
                    .save_without_detached_devices(&record_with_files, &mut record_without_files)
                    .map_err(ContainerChangeError::FilesRemain)?;
            }
            None
        }
    };
    drop(record_file);
    let holders = find_device_holders(&record, &to_device_rules(&detached_record.rules));
    announce_devices(&detached_record, DeviceChange::Detached, config);
    let mut cancelled_requests = detached_record.awaited_requests;
    let has_removed_leftover_files =
        detached_record.devices.is_empty() && cancelled_requests.is_empty();
    cancelled_requests.retain(|request| {
        let mut devices = detached_record.devices.iter();
        !devices.any(|device| request.has_device(device))
    });
    Ok(DetachResult {
        has_removed_leftover_files,
        devices: detached_record.devices,
        cancelled_requests,
        removal_error,
        warnings,
        holders,
    })
}

fn warn_if_not_saved(id: &str, save_result: io::Result<()>) {
    if let Err(error) = save_result {
        log::warning(&format!(
            "container {id}: `follow` may set the revoked rules again: {error}"
        ));
    }
}

/// Finds the attached devices that `requested_devices` selects, and the requests for devices that
/// may come later. An empty list selects all that `detach` may remove or cancel. Other requests for
/// a selected device are returned too, because they end when the device is detached.
fn find_requested_devices(
    record: &AttachmentRecord,
    requested_devices: &[CdiGrant],
    config: &Config,
) -> Result<(BTreeSet<DeviceRef>, Vec<AwaitedRequest>), ContainerChangeError> {
    let (mut devices, mut awaited_requests) = (BTreeSet::new(), Vec::new());
    let cancellable_requests: Vec<&AwaitedRequest> = record
        .awaited_requests
        .iter()
        .filter(|request| is_cancellable(request, record))
        .collect();
    if requested_devices.is_empty() {
        let detachable_devices = record.devices.iter();
        let detachable_devices =
            detachable_devices.filter(|device| may_detach_device(device, record));
        devices.extend(detachable_devices.map(ContainerDevice::device_ref));
        awaited_requests.clone_from(&cancellable_requests);
    }
    for grant in requested_devices {
        // The device list as a whole may be the name of one device, or the list with which devices
        // were attached. So the whole list is looked up before it is split into items.
        let devices_by_list = find_attached_devices(record, grant, grant.devices.as_str());
        if !devices_by_list.is_empty() && grant.devices.as_str() != "all" {
            devices.extend(devices_by_list);
            continue;
        }
        for item in grant.devices.items() {
            // `all` in quotes is the name of a device. It does not mean all devices.
            let is_quoted_all = item.text == "all" && item.is_quoted;
            let mut matching_devices = if is_quoted_all {
                Vec::new()
            } else {
                find_attached_devices(record, grant, &item.text)
            };
            if matching_devices.is_empty() {
                // The user may have written another name of an attached device, such as an alias.
                // So the name is looked up among the devices of the host.
                let ids = find_host_device_ids(record, grant, item, config);
                matching_devices = ids
                    .iter()
                    .flat_map(|id| find_attached_devices(record, grant, id.as_str()))
                    .collect();
            }
            let requests_of_class = cancellable_requests
                .iter()
                .filter(|request| request.class == grant.class);
            let matching_requests: Vec<_> = requests_of_class
                .filter(|request| request.matches_item(item))
                .copied()
                .collect();
            if matching_devices.is_empty() && matching_requests.is_empty() {
                return Err(not_attached_error(grant, &item.text, record));
            }
            devices.extend(matching_devices);
            awaited_requests.extend(matching_requests);
        }
    }
    let devices_of_requests = record.devices.iter().filter(|device| {
        let mut requests = awaited_requests.iter();
        requests.any(|request| request.has_device(device))
    });
    devices.extend(devices_of_requests.map(ContainerDevice::device_ref));
    let has_device_of = |request: &AwaitedRequest| {
        let mut recorded_devices = record.devices.iter();
        recorded_devices
            .any(|device| request.has_device(device) && devices.contains(&device.device_ref()))
    };
    let requests = record.awaited_requests.iter();
    let requests =
        requests.filter(|request| awaited_requests.contains(request) || has_device_of(request));
    let requests = requests.cloned().collect();
    Ok((devices, requests))
}

/// Reports whether `detach` may cancel a request. A request that has a device is cancelled only if
/// the device may be removed.
fn is_cancellable(request: &AwaitedRequest, record: &AttachmentRecord) -> bool {
    let mut devices = record.devices.iter();
    let device = devices.find(|device| request.has_device(device));
    device.is_none_or(|device| may_detach_device(device, record))
}

/// Reports whether `detach` may remove a device. A device that the container got at its start may
/// not be removed. The exception is an unplugged device, without rules and files in the container,
/// for which a request still waits.
fn may_detach_device(device: &ContainerDevice, record: &AttachmentRecord) -> bool {
    let mut requests = record.awaited_requests.iter();
    device.is_detachable()
        || !record.has_rule_or_file_of(device) && requests.any(|request| request.has_device(device))
}

/// Returns the attached device of the grant's class that has the id `name`. If no device has this
/// id, returns the devices that were attached by the name or the device list `name`. `all` selects
/// all devices of the class.
fn find_attached_devices(
    record: &AttachmentRecord,
    grant: &CdiGrant,
    name: &str,
) -> Vec<DeviceRef> {
    let devices_of_class = record
        .devices
        .iter()
        .filter(|device| may_detach_device(device, record) && device.class == grant.class);
    let (mut matches_by_id, mut matches_by_name) = (Vec::new(), Vec::new());
    for device in devices_of_class {
        if device.device_id.as_str() == name || device.label() == name {
            matches_by_id.push(device.device_ref());
        } else if device.grant_origin.devices() == name
            || name == "all"
            || device.has_arrived_late && device.has_name(name)
        {
            matches_by_name.push(device.device_ref());
        }
    }
    if matches_by_id.is_empty() {
        matches_by_name
    } else {
        matches_by_id
    }
}

fn not_attached_error(
    grant: &CdiGrant,
    name: &str,
    record: &AttachmentRecord,
) -> ContainerChangeError {
    let devices = record.devices.iter();
    let device_names = devices
        .filter(|device| may_detach_device(device, record))
        .map(|device| format!("{}={}", device.class, device.label()));
    let requests = record.awaited_requests.iter();
    let requests = requests.filter(|request| request.device_id.is_none());
    let request_names = requests.map(|request| {
        format!(
            "{}={}",
            request.class,
            request.awaited_device.to_request_text()
        )
    });
    let names: Vec<String> = device_names.chain(request_names).collect();
    let hint = if names.is_empty() {
        "nothing is; a device that it was started with stays".to_owned()
    } else {
        format!("attached are {}", names.join(", "))
    };
    let class = &grant.class;
    ContainerChangeError::NotAttached(format!("{class}={name} is not attached to it; {hint}"))
}

/// Returns the ids of the devices that `item` selects on the host now. `item` is one element of a
/// device list. The result is empty if it selects no device.
fn find_host_device_ids(
    record: &AttachmentRecord,
    grant: &CdiGrant,
    item: &DeviceListItem,
    config: &Config,
) -> Vec<DeviceId> {
    let Ok(mut bundle) = Bundle::read(&record.bundle_dir) else {
        return Vec::new();
    };
    let grant = CdiGrant {
        devices: DeviceList::from_item(item.without_suffix()),
        ..grant.clone()
    };
    bundle.attach_requests = vec![AttachRequest {
        grant,
        is_forced: true,
    }];
    let plan = planner::plan_container_injection(&bundle, &Caller::Attach, config);
    let grants = plan.map_or_else(|_| Vec::new(), |plan| plan.grants);
    let user_grants = grants
        .into_iter()
        .filter(|grant| grant.grant_origin.is_user());
    user_grants.flat_map(|grant| grant.devices).collect()
}

//! Detaching: what attaching added is taken away, and nothing else.
//!
//! The device rules are revoked first, by the record alone ([`super::revoke`]). Then what was
//! made in the container's root is removed; that needs its mount namespace, which the container
//! can make unusable.

use device_class::config::Config;
use device_class::device::DeviceRule;
use injection_plan::request::split_list;

use super::follow::{self, Became};
use super::open_by::{self, OpenBy};
use super::record::{Device, Record};
use super::records::{self, Records};
use super::rule::parsed;
use super::{LiveError, OpenContainer, in_child, lock, require_root, try_twice};
use crate::container::ContainerRoot;
use crate::oci::{Attached, Bundle, CdiGrant};
use crate::planner::{self, Caller};
use crate::sys::deadline::{self, Deadline, Stage};

/// What was taken away.
#[derive(Default)]
pub(crate) struct Detached {
    pub(crate) devices: Vec<Device>,
    /// Whether what was left in the container of devices that were detached before is removed.
    pub(crate) removed_rest: bool,
    /// Why device nodes and files stay in the container's mount namespace.
    pub(crate) not_removed: Option<LiveError>,
    pub(crate) warnings: Vec<String>,
    /// Processes that opened a device before, and can use it as long as they have it open.
    pub(crate) open_by: Vec<OpenBy>,
}

/// Takes devices away from the container `id`; without any named, all that were attached.
pub(crate) fn detach(id: &str, named: &[CdiGrant], config: &Config) -> Result<Detached, LiveError> {
    require_root()?;
    let deadline = Deadline::start(deadline::SECONDS).map_err(LiveError::Fork)?;
    // A process that does not end may have the lock for ever: the rules are revoked without it.
    let records = Records::open(&config.host_root, id, lock::PATIENCE);
    let record = match &records {
        Ok(records) => records.read()?,
        Err(_) => records::find(&config.host_root, id)?,
    };
    let record = record.filter(|record| !record.has_ended());
    Stage::Planning.begin();
    let named = named_devices(record.as_ref(), named, config)?;
    deadline.cancel();
    let Some(record) = record else {
        return Ok(Detached::default());
    };
    let mut left = record.clone();
    let taken = left.take(|device| match named.is_empty() {
        true => device.asked.is_user(),
        false => named.iter().any(|grant| is_named(device, grant)),
    });
    if !taken.has_content() {
        return Ok(Detached::default());
    }
    let warnings = match in_child(|notes| {
        Stage::Rules.begin();
        notes.extend(record.revoke(&taken.rules, &left)?);
        Ok(())
    }) {
        Ok(warnings) => warnings,
        Err(error) => {
            let allowed = record.still_allowed(&taken.rules, &left);
            let mut record = record;
            record
                .rules
                .retain(|rule| !taken.rules.contains(rule) || allowed.contains(rule));
            records?.save(&record)?;
            return Err(error);
        }
    };
    let records = records.map_err(LiveError::OnlyRevoked)?;
    left.withdraw(&taken.rules);
    let mut with_rest = left.clone();
    with_rest.add(Vec::new(), Vec::new(), taken.made.clone());
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
    follow::tell_of(&taken, Became::Detached, config);
    Ok(Detached {
        removed_rest: taken.devices.is_empty(),
        devices: taken.devices,
        not_removed,
        warnings,
        open_by,
    })
}

/// Whether a device that was attached is meant.
fn is_named(device: &Device, grant: &CdiGrant) -> bool {
    let is_its = |name: &str| [&*device.device, device.asked.devices(), "all"].contains(&name);
    let named = split_list(&grant.device).unwrap_or_default();
    device.asked.is_user()
        && grant.class.as_str() == device.class
        && (is_its(&grant.device) || named.iter().any(|item| is_its(&item.text)))
}

/// The devices that the user named, as the record has them.
fn named_devices(
    record: Option<&Record>,
    named: &[CdiGrant],
    config: &Config,
) -> Result<Vec<CdiGrant>, LiveError> {
    let devices = record.map_or(&[][..], |record| &record.devices);
    let has = |grant: &CdiGrant| devices.iter().any(|it| is_named(it, grant));
    let named = named.iter().map(|grant| match record {
        Some(record) if !has(grant) => by_id(record, grant, config),
        _ => grant.clone(),
    });
    let named: Vec<CdiGrant> = named.collect();
    let Some(unknown) = named.iter().find(|grant| !has(grant)) else {
        return Ok(named);
    };
    let attached = devices.iter().filter(|device| device.asked.is_user());
    let attached: Vec<String> = attached
        .map(|device| format!("{}={}", device.class, device.device))
        .collect();
    Err(LiveError::NotAttached(format!(
        "{}={} is not attached to it; {}",
        unknown.class,
        unknown.device,
        match attached.is_empty() {
            true => "nothing is; a device that it was started with stays".to_owned(),
            false => format!("attached are {}", attached.join(", ")),
        }
    )))
}

/// The same by ids, if this host has the devices: they may be named otherwise than they were
/// attached.
fn by_id(record: &Record, grant: &CdiGrant, config: &Config) -> CdiGrant {
    let plan = || {
        let mut bundle = Bundle::read(&record.bundle).ok()?;
        bundle.attached = vec![Attached {
            grant: grant.clone(),
            forced: true,
        }];
        planner::plan_for(&bundle, &Caller::Attach, config).ok()
    };
    let grants = plan().map(|plan| plan.grants).unwrap_or_default();
    let attached = grants.into_iter().filter(|it| it.given_by.is_user());
    let ids: Vec<String> = attached.flat_map(|it| it.devices).collect();
    match ids.is_empty() {
        true => grant.clone(),
        false => CdiGrant {
            device: ids.join(","),
            ..grant.clone()
        },
    }
}

/// Removes what was made in the root of a container. A child does, so that a file system that does
/// not answer keeps nobody waiting.
pub(super) fn remove(container: &Record, taken: &Record) -> Result<(), LiveError> {
    if taken.made.is_empty() {
        return Ok(());
    }
    let removed = in_child(|_| undo_in(&OpenContainer::open(&container.found())?, taken));
    removed.map(drop)
}

/// The same in a container that is open.
pub(super) fn remove_in(container: &OpenContainer, taken: &Record) -> Result<(), LiveError> {
    in_child(|_| undo_in(container, taken)).map(drop)
}

/// Enters a container, for good, and takes all of a record out of its root.
fn undo_in(container: &OpenContainer, taken: &Record) -> Result<(), LiveError> {
    Stage::Container.begin();
    let root = container.enter()?;
    try_twice(|| undo(taken, &root))
}

/// Takes all of a record out of a container's root: as much as possible, and the first fault.
pub(super) fn undo(record: &Record, root: &ContainerRoot) -> Result<(), LiveError> {
    let undone = record.made.iter().rev().map(|made| made.undo(root));
    let faults: Vec<LiveError> = undone.filter_map(Result::err).collect();
    faults.into_iter().next().map_or(Ok(()), Err)
}

pub(super) fn rules(record: &Record) -> Vec<DeviceRule> {
    parsed(&record.rules)
}

//! Creates a part of a device, such as a MIG instance, when a claim for this part is prepared.
//! After the claim ends, the part is kept until another part needs its capacity.
//!
//! A part exists if a scan of the host finds it, whatever the exit status of the program that
//! creates it. Therefore it does not matter which program created a part. If a killed process left
//! an incomplete part, that part is removed and created again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use daemon::host_inventory::host_program;
use device_class::discover::PossiblePart;
use device_class::host::RealHost;
use device_class::name::{ClassName, DeviceId, excerpt};
use injection_plan::facts::ReportedProperties;
use tokio::runtime::Handle;

use super::part_steps::{StepsResult, run_steps};
use super::record::Record;
use super::store::UnreadableRecords;
use crate::class_devices::{ClassDevices, DivisibleDevice, NamedDevice};
use crate::plugin_allocations::PluginAllocations;

/// The maximum time after the last program or write, within which a scan must find a created part,
/// or must no longer find a removed part.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The reason why a claim cannot get a part of a device, or cannot get a whole device that is
/// divided into parts.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error("class {class} has no {device} now: delete the pod, so that it is scheduled again")]
    NoSuchDevice { class: ClassName, device: String },
    #[error(
        "there is no room for {device} beside what other claims have of the same device: delete \
         the pod, so that it is scheduled again"
    )]
    InsufficientCapacity { device: String },
    #[error("the part {device} cannot be made: {reason}")]
    CreationFailed { device: String, reason: String },
    #[error("the part {part}, which no claim has, is in the way and cannot be removed: {reason}")]
    ConflictingPart { part: String, reason: String },
    #[error("what was made of the part {device} cannot be removed: {reason}")]
    RemovalFailed { device: String, reason: String },
    #[error("{} cannot be searched for devices: {error}", host_root.display())]
    Host {
        host_root: PathBuf,
        error: io::Error,
    },
}

/// Creates and removes parts of devices on one host, by programs and files that the class names.
#[derive(Debug, Clone)]
pub struct PartCreator {
    /// The path at which this process sees the host's root directory.
    pub host_root: PathBuf,
    pub allocations: PluginAllocations,
}

/// The records of all claims except the claim that is being prepared. The devices and parts in
/// these records are in use.
#[derive(Debug)]
pub(super) struct OtherClaims {
    pub(super) records: Vec<Record>,
    pub(super) unreadable_records: UnreadableRecords,
}

impl OtherClaims {
    /// Returns whether another claim has the part with this name or id, or whether the part is
    /// being created for another claim.
    fn has_part(&self, class: &ClassName, name: &str, part_id: Option<&DeviceId>) -> bool {
        self.records.iter().any(|record| {
            let mut pending_devices = record.pending_devices.iter();
            let mut devices = record.devices.iter();
            pending_devices.any(|device| device.class == *class && device.device == name)
                || devices.any(|device| {
                    device.class == *class && (device.device == name || Some(&device.id) == part_id)
                })
        })
    }
}

impl PartCreator {
    /// Searches the host for the devices of a class, because parts may have been created since the
    /// last scan.
    pub(super) fn discover_devices(&self, class: &ClassDevices) -> Result<ClassDevices, PartError> {
        class
            .rediscover_devices(&self.host_root)
            .map_err(|error| PartError::Host {
                host_root: self.host_root.clone(),
                error,
            })
    }

    /// Searches the host for the devices of a class after programs have created or removed parts.
    /// First runs the vendor's program that reports the driver properties, because these may have
    /// changed.
    fn refresh_devices(&self, class: &ClassDevices) -> Result<ClassDevices, PartError> {
        let device_class = &class.class;
        if !device_class.spec.property_programs.is_empty()
            && device_class.settings.uses_driver_properties()
        {
            let build_command = |program: &Path, arguments: &[String]| {
                host_program::build_command(&self.host_root, program, arguments)
            };
            let reported_properties =
                ReportedProperties::run_programs(device_class, &self.host_root, build_command);
            // The host is opened after the programs, because an open `RealHost` does not notice
            // what they changed.
            let write_result = RealHost::open(&self.host_root)
                .and_then(|host| reported_properties.write(device_class, &self.host_root, &host));
            if let Err(error) = write_result {
                tracing::warn!("{}: facts cannot be written: {error}", device_class.name);
            }
        }
        self.discover_devices(class)
    }

    /// Searches for the devices of a class repeatedly until the condition holds or
    /// [`DISCOVERY_TIMEOUT`] has passed, but only once if `steps_result` is a failure. Returns the
    /// devices, and whether the condition holds.
    fn poll_devices(
        &self,
        class: &ClassDevices,
        steps_result: &StepsResult,
        condition: impl Fn(&ClassDevices) -> bool,
    ) -> Result<(ClassDevices, bool), PartError> {
        let deadline = Instant::now() + DISCOVERY_TIMEOUT;
        loop {
            let current_class = self.refresh_devices(class)?;
            let is_condition_met = condition(&current_class);
            if is_condition_met || !steps_result.is_success() || Instant::now() >= deadline {
                return Ok((current_class, is_condition_met));
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Makes the part or the divisible device `name` (its name in ResourceSlices) usable for a
    /// claim. Frees capacity of the device, and creates the part if it does not exist. Returns the
    /// class's devices after these changes, and the id of the part or device.
    pub(super) fn ensure_device_ready(
        &self,
        class: &ClassDevices,
        name: &str,
        other_claims: &OtherClaims,
    ) -> Result<(ClassDevices, DeviceId), PartError> {
        let current_class = self.discover_devices(class)?;
        let (parent, part) = find_device_or_part(&current_class, name)?;
        match part {
            Some(PossiblePart {
                existing_id: Some(id),
                ..
            }) => {
                let id = id.clone();
                Ok((current_class, id))
            }
            Some(part) => {
                let updated_class = self.reclaim_capacity(
                    &current_class,
                    parent,
                    name,
                    &part.consumed_counters,
                    other_claims,
                )?;
                self.create_with_retry(
                    updated_class.as_ref().unwrap_or(&current_class),
                    name,
                    other_claims,
                )
            }
            None => {
                let (counters, id) = (
                    &parent.division.counters,
                    parent.division.whole_device.id.clone(),
                );
                let updated_class =
                    self.reclaim_capacity(&current_class, parent, name, counters, other_claims)?;
                Ok((updated_class.unwrap_or(current_class), id))
            }
        }
    }

    /// Removes parts that no claim has, one after the other, until the device has enough free
    /// capacity for the part `new_part_name`. Returns the devices of the class after the last
    /// removal, or `None` if no part was removed.
    fn reclaim_capacity(
        &self,
        class: &ClassDevices,
        parent: &DivisibleDevice,
        new_part_name: &str,
        needed_counters: &BTreeMap<String, u64>,
        other_claims: &OtherClaims,
    ) -> Result<Option<ClassDevices>, PartError> {
        let class_name = &class.class.name;
        let (claimed_parts, unclaimed_parts): (Vec<_>, Vec<_>) = parent
            .parts()
            .filter(|(part_name, _)| *part_name != new_part_name)
            .partition(|(part_name, part)| {
                other_claims.has_part(class_name, part_name, part.existing_id.as_ref())
            });
        let mut used_counters = needed_counters.clone();
        for (_, part) in claimed_parts {
            add_amounts(&mut used_counters, &part.consumed_counters);
        }
        let total_counters = &parent.division.counters;
        if !has_sufficient_counters(&used_counters, total_counters) {
            let device = new_part_name.to_owned();
            return Err(PartError::InsufficientCapacity { device });
        }
        let mut updated_class: Option<ClassDevices> = None;
        for (part_name, unclaimed_part) in unclaimed_parts
            .into_iter()
            .filter(|(_, part)| part.existing_id.is_some())
        {
            // A part that no longer exists was removed together with another part of its group
            // (`together` in the class file).
            if updated_class
                .as_ref()
                .is_some_and(|latest_class| !part_exists(latest_class, part_name))
            {
                continue;
            }
            let mut counters_with_part = used_counters.clone();
            add_amounts(&mut counters_with_part, &unclaimed_part.consumed_counters);
            if has_sufficient_counters(&counters_with_part, total_counters) {
                used_counters = counters_with_part;
                continue;
            }
            let to_error = |reason| PartError::ConflictingPart {
                part: part_name.to_owned(),
                reason,
            };
            // If the class file sets `together`, the steps that remove this part also remove the
            // other parts of its group.
            let is_removed_by_steps = |other_part: &&PossiblePart| {
                other_part.existing_id == unclaimed_part.existing_id || unclaimed_part.is_grouped
            };
            let existing_parts = parent
                .division
                .parts
                .iter()
                .filter(|existing_part| existing_part.existing_id.is_some());
            for existing_part in existing_parts.filter(is_removed_by_steps) {
                self.check_part_unused(class, existing_part, other_claims)
                    .map_err(to_error)?;
            }
            tracing::info!(
                "removing the part {part_name} of {class_name}, whose room {new_part_name} needs"
            );
            let steps_result = run_steps(
                &self.host_root,
                &unclaimed_part.removal_steps,
                unclaimed_part.timeout,
                false,
            );
            let (current_class, is_removed) =
                self.poll_devices(class, &steps_result, |current_class| {
                    !part_exists(current_class, part_name)
                })?;
            if !is_removed {
                return Err(to_error(steps_result.describe_failure()));
            }
            updated_class = Some(current_class);
        }
        Ok(updated_class)
    }

    /// Checks that no container uses a part that is about to be removed. Fails if a claim record
    /// cannot be read, because that claim may have the part.
    fn check_part_unused(
        &self,
        class: &ClassDevices,
        part: &PossiblePart,
        other_claims: &OtherClaims,
    ) -> Result<(), String> {
        if let Some((uid, reason)) = other_claims.unreadable_records.first() {
            let uid = uid.as_str();
            return Err(format!(
                "the claim {uid} may have it, whose record cannot be read: {reason}"
            ));
        }
        let device = part
            .existing_id
            .as_ref()
            .and_then(|id| class.find_by_id(id));
        let read_result = Handle::current().block_on(self.allocations.read());
        let allocated_ids =
            read_result.map_err(|error| format!("a container may have it: {error}"))?;
        if device.is_some_and(|device| allocated_ids.contains_device(device)) {
            Err("a container still has it by the device plugin".to_owned())
        } else {
            Ok(())
        }
    }

    /// Creates a part. If this fails, removes the remains of incomplete parts and tries once more,
    /// because these remains may have caused the failure.
    fn create_with_retry(
        &self,
        class: &ClassDevices,
        name: &str,
        other_claims: &OtherClaims,
    ) -> Result<(ClassDevices, DeviceId), PartError> {
        let mut latest_class = None;
        let mut is_second_attempt = false;
        loop {
            let current_class = latest_class.as_ref().unwrap_or(class);
            let (_, Some(part)) = find_device_or_part(current_class, name)? else {
                return Err(missing_part_error(class, name));
            };
            let steps_result = run_steps(&self.host_root, &part.creation_steps, part.timeout, true);
            let (discovered, _) =
                self.poll_devices(class, &steps_result, |latest| part_exists(latest, name))?;
            if let (
                _,
                Some(PossiblePart {
                    existing_id: Some(id),
                    ..
                }),
            ) = find_device_or_part(&discovered, name)?
            {
                let id = id.clone();
                return Ok((discovered, id));
            }
            self.remove_incomplete_part(&discovered, name);
            if is_second_attempt || steps_result.is_killed() {
                let (device, reason) = (name.to_owned(), steps_result.describe_failure());
                return Err(PartError::CreationFailed { device, reason });
            }
            tracing::info!(
                "making the part {name} once more: {}",
                steps_result.describe_failure()
            );
            self.remove_other_incomplete_parts(&discovered, name, other_claims);
            (latest_class, is_second_attempt) = (Some(discovered), true);
        }
    }

    /// Removes the remains of other incomplete parts that no claim has. If the removal of a part
    /// failed, a scan may not find the part although it still occupies capacity.
    fn remove_other_incomplete_parts(
        &self,
        class: &ClassDevices,
        name: &str,
        other_claims: &OtherClaims,
    ) {
        let Ok((parent, Some(part))) = find_device_or_part(class, name) else {
            return;
        };
        for (other_part_name, other_part) in parent
            .parts()
            .filter(|(other_part_name, _)| *other_part_name != name)
        {
            let mut needed_counters = part.consumed_counters.clone();
            add_amounts(&mut needed_counters, &other_part.consumed_counters);
            // A part with the same removal steps is skipped, because these steps have already run
            // for the part `name`.
            let may_have_remains = other_part.existing_id.is_none()
                && other_part.removal_steps != part.removal_steps
                && !other_claims.has_part(&class.class.name, other_part_name, None);
            if may_have_remains
                && !has_sufficient_counters(&needed_counters, &parent.division.counters)
            {
                self.remove_incomplete_part(class, other_part_name);
            }
        }
    }

    /// Removes the remains of an incomplete part, whose creation by [`Self::ensure_device_ready`]
    /// was interrupted.
    pub(super) fn roll_back(&self, class: &ClassDevices, name: &str) -> Result<(), PartError> {
        // The driver properties are read again, because the known ones may be older than the
        // interrupted call.
        let current_class = self.refresh_devices(class)?;
        match self.remove_incomplete_part(&current_class, name) {
            // A failure is ignored unless a program was killed, because a program that finds
            // nothing to remove may exit with an error status.
            steps_result if !steps_result.is_killed() => Ok(()),
            steps_result => Err(PartError::RemovalFailed {
                device: name.to_owned(),
                reason: steps_result.describe_failure(),
            }),
        }
    }

    /// Removes the remains of an incomplete part. Does nothing if the part or an overlapping part
    /// exists, because the removal steps could remove that existing part.
    fn remove_incomplete_part(&self, class: &ClassDevices, name: &str) -> StepsResult {
        let Ok((parent, Some(part))) = find_device_or_part(class, name) else {
            return StepsResult::Success;
        };
        let mut parts = parent.division.parts.iter();
        let conflicts_with_part =
            |other_part: &PossiblePart| part.is_grouped || other_part.overlaps(part);
        if parts
            .any(|other_part| other_part.existing_id.is_some() && conflicts_with_part(other_part))
        {
            StepsResult::Success
        } else {
            run_steps(&self.host_root, &part.removal_steps, part.timeout, false)
        }
    }
}

/// Finds a divisible device or a part by its name in ResourceSlices. Returns the divisible device
/// and, if the name is that of a part, the part.
fn find_device_or_part<'a>(
    class: &'a ClassDevices,
    name: &str,
) -> Result<(&'a DivisibleDevice, Option<&'a PossiblePart>), PartError> {
    let device = class
        .divisible_devices
        .iter()
        .find(|device| device.name == name);
    match (device, class.find_by_name(name)) {
        (Some(device), _) => Ok((device, None)),
        (None, Some(NamedDevice::Part(device, part))) => Ok((device, Some(part))),
        (None, _) => Err(missing_part_error(class, name)),
    }
}

fn part_exists(class: &ClassDevices, name: &str) -> bool {
    find_device_or_part(class, name)
        .is_ok_and(|(_, part)| part.is_some_and(|part| part.existing_id.is_some()))
}

fn missing_part_error(class: &ClassDevices, name: &str) -> PartError {
    PartError::NoSuchDevice {
        class: class.class.name.clone(),
        device: excerpt(name),
    }
}

fn add_amounts(sum: &mut BTreeMap<String, u64>, amounts: &BTreeMap<String, u64>) {
    for (name, amount) in amounts {
        let total_amount = sum.entry(name.clone()).or_default();
        *total_amount = total_amount.saturating_add(*amount);
    }
}

fn has_sufficient_counters(
    used_counters: &BTreeMap<String, u64>,
    total_counters: &BTreeMap<String, u64>,
) -> bool {
    let mut used_counters = used_counters.iter();
    used_counters.all(|(name, amount)| {
        total_counters
            .get(name)
            .is_some_and(|total_counters| amount <= total_counters)
    })
}

//! Prepares and unprepares claims. The process may be killed after any step; the next call of the
//! kubelet completes the work.
//!
//! ```text
//! prepare:    record ─▶ [parts ─▶ record] ─▶ specification ─▶ answer
//! unprepare:  [parts made by half gone ─▶] specification gone ─▶ record gone
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;

use device_class::name::{ClassName, DeviceId};
use injection_plan::cdi::{Description, ThinHook};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kubelet_api::dra::v1::Device;

use super::allocation::{AllocatedRequest, AllocationError, allocated_requests, reserving_pods};
use super::conflicts;
use super::parameters::ParameterError;
use super::part_maker::{ClaimedParts, PartError, PartMaker};
use super::record::{ClaimUid, PendingDevice, PreparedDevice, Record};
use super::specification::{self, SpecificationError};
use super::store::{ClaimStore, RecordFile, StoreError, StoreLock, UnreadableRecords};
use crate::class_devices::{ClassDevices, NamedDevice};
use crate::names;
use crate::pod_cgroups::PodUid;

/// The reason why a claim cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("pool {0} is not of a class that this node serves for claims")]
    NoPool(String),
    #[error(
        "pool {pool} has no device {device} now; if that is a part, put its profile back into \
         [[parts]] of the class, or delete the pod, so that it is scheduled again"
    )]
    NoDevice { pool: String, device: String },
    /// Another claim still has the device. The scheduler allocates a device to one claim only,
    /// unless it is shared.
    #[error(
        "device {device} of pool {pool} is still prepared for the claim {holder}: end the pod of \
         that, or delete this one, so that it is scheduled again"
    )]
    InUse {
        pool: String,
        device: String,
        /// The claim that has the device, as `NAMESPACE/NAME`.
        holder: String,
        uids: Vec<ClaimUid>,
    },
    #[error(
        "device {device} of pool {pool} may be shared by {total}, and {used} shares are prepared \
         for claims ({}): end the pod of one, or delete this one, so that it is scheduled again",
        holders.join(", ")
    )]
    TooFewShares {
        pool: String,
        device: String,
        total: u16,
        used: u64,
        /// The claims that have the device, each as `NAMESPACE/NAME`.
        holders: Vec<String>,
        uids: Vec<ClaimUid>,
    },
    #[error(transparent)]
    Part(#[from] PartError),
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    #[error(transparent)]
    ClaimStore(#[from] StoreError),
}

/// The reason why a claim cannot be unprepared.
#[derive(Debug, thiserror::Error)]
pub enum UnprepareError {
    #[error(transparent)]
    Part(#[from] PartError),
    #[error(transparent)]
    ClaimStore(#[from] StoreError),
}

/// Prepares and unprepares the claims of this node.
#[derive(Debug, Clone)]
pub struct NodeClaims {
    pub node: String,
    /// The records of prepared claims.
    pub store: ClaimStore,
    /// The directory of CDI specifications.
    pub cdi: PathBuf,
    /// The path of the hook on the host.
    pub hook: PathBuf,
    /// The host's root directory, as engines see it.
    pub host_root: PathBuf,
    pub part_maker: PartMaker,
}

/// A device of an allocation result, together with its class on this node.
pub(super) struct AllocatedDevice<'a> {
    pub(super) allocated: &'a AllocatedRequest,
    pub(super) class: &'a ClassDevices,
    /// The entry for the claim record. `None` means that the part must be created first.
    pub(super) device: Option<PreparedDevice>,
}

impl AllocatedDevice<'_> {
    fn pending_device(&self) -> PendingDevice {
        PendingDevice {
            pool: self.allocated.pool.clone(),
            device: self.allocated.device.clone(),
            class: self.class.class.name.clone(),
        }
    }
}

impl NodeClaims {
    fn description(&self) -> Description<'_> {
        Description {
            hook: Some(ThinHook {
                program: &self.hook,
                timeout: runtime_config::HOOK_TIMEOUT,
                config: None,
            }),
            host_root: &self.host_root,
        }
    }

    /// Prepares the claim that the API server returned. The call is idempotent: a prepared claim
    /// is prepared again.
    pub fn prepare(
        &self,
        uid: &ClaimUid,
        claim: &ResourceClaim,
        inventory: &[ClassDevices],
    ) -> Result<Vec<Device>, PrepareError> {
        let allocated = allocated_requests(claim, uid)?;
        let devices = allocated
            .iter()
            .map(|device| self.find_device(device, inventory));
        let devices: Vec<AllocatedDevice<'_>> = devices.collect::<Result<_, _>>()?;
        // No part is created for a request with admin access.
        let missing_parts = devices
            .iter()
            .filter(|device| device.device.is_none() && !device.allocated.admin);
        let missing_parts: Vec<&AllocatedDevice<'_>> = missing_parts.collect();
        let mut record = Record {
            version: Record::VERSION,
            uid: uid.clone(),
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            name: claim.metadata.name.clone().unwrap_or_default(),
            pods: reserving_pods(claim),
            devices: devices
                .iter()
                .filter_map(|device| device.device.clone())
                .collect(),
            making: missing_parts
                .iter()
                .map(|device| device.pending_device())
                .collect(),
        };
        let _class_locks = self.lock_classes(&record)?;
        let mut locked = self.store.lock()?;
        let (mut other_records, unreadable) = self.store.read_all()?;
        let previous = other_records
            .iter()
            .position(|other| other.uid == record.uid);
        let previous = previous.map(|index| other_records.remove(index));
        // A pod that was deleted by force may use the claim, and is not among the reserving pods.
        let known = previous.as_ref().and_then(|previous| previous.pods.clone());
        record.pods = merge_pods(known, record.pods, |_| true);
        conflicts::check_conflicts(&devices, previous.as_ref(), &other_records)?;
        self.store.write(&record)?;
        let mut inventory = Cow::Borrowed(inventory);
        if !missing_parts.is_empty() {
            drop(locked);
            other_records.push(record.clone());
            let claimed = ClaimedParts {
                records: other_records,
                unreadable,
            };
            for device in missing_parts {
                let (current, id) =
                    self.part_maker
                        .make_ready(device.class, &device.allocated.device, &claimed)?;
                record
                    .devices
                    .push(prepared_device(device.allocated, &current, id));
                // The latest lookup includes every part that was created so far.
                let mut class = inventory.to_mut().iter_mut();
                if let Some(class) = class.find(|class| class.class.name == current.class.name) {
                    *class = current;
                }
            }
            record.making.clear();
            locked = self.store.lock()?;
            self.store.write(&record)?;
        }
        specification::write(&self.cdi, self.description(), &record, &inventory)?;
        drop(locked);
        Ok(prepare_response(&record))
    }

    /// Finds an allocated device on this node.
    fn find_device<'a>(
        &self,
        allocated: &'a AllocatedRequest,
        inventory: &'a [ClassDevices],
    ) -> Result<AllocatedDevice<'a>, PrepareError> {
        let has_pool = |class: &&ClassDevices| {
            names::pool_name(&self.node, &class.class.name) == allocated.pool
        };
        let class = inventory.iter().find(has_pool);
        let class = class.ok_or_else(|| PrepareError::NoPool(allocated.pool.clone()))?;
        let device_or_part = class.find_by_name(&allocated.device);
        let device_or_part = device_or_part.ok_or_else(|| PrepareError::NoDevice {
            pool: allocated.pool.clone(),
            device: allocated.device.clone(),
        })?;
        allocated.parameters.variables(&class.class)?;
        let mut divisible_devices = class.divisible_devices.iter();
        let id = match device_or_part {
            NamedDevice::Part(_, part) => allocated.admin.then(|| part.made.clone()).flatten(),
            NamedDevice::Device(device) => {
                let is_whole =
                    divisible_devices.any(|divisible| divisible.name == allocated.device);
                (allocated.admin || !is_whole).then(|| device.id.clone())
            }
        };
        Ok(AllocatedDevice {
            allocated,
            class,
            device: id.map(|id| prepared_device(allocated, class, id)),
        })
    }

    /// Locks the classes of all parts that must be created for a claim.
    fn lock_classes(&self, record: &Record) -> Result<Vec<StoreLock>, StoreError> {
        let classes: BTreeSet<&ClassName> =
            record.making.iter().map(|device| &device.class).collect();
        let locks = classes
            .into_iter()
            .map(|class| self.store.lock_class(class));
        locks.collect()
    }

    /// Unprepares a claim that no container of the node uses any more. An unknown claim is not an
    /// error. The claim's parts are kept until their capacity is needed.
    pub fn unprepare(
        &self,
        uid: &ClaimUid,
        inventory: &[ClassDevices],
    ) -> Result<(), UnprepareError> {
        self.unprepare_if(uid, || true, inventory).map(drop)
    }

    /// Unprepares a claim if its record file is still `earlier`. A different file means that a
    /// pod, which the API server did not know when it was asked, had the claim prepared again.
    /// Returns whether the claim was unprepared.
    pub(crate) fn unprepare_unchanged(
        &self,
        uid: &ClaimUid,
        earlier: &RecordFile,
        inventory: &[ClassDevices],
    ) -> Result<bool, UnprepareError> {
        self.unprepare_if(uid, || self.store.is_unchanged(uid, earlier), inventory)
    }

    /// Unprepares a claim if the condition holds. The condition is evaluated again under each
    /// lock.
    fn unprepare_if(
        &self,
        uid: &ClaimUid,
        condition: impl Fn() -> bool,
        inventory: &[ClassDevices],
    ) -> Result<bool, UnprepareError> {
        let read_record = || self.store.read(uid).ok().flatten();
        // The record is read again under the lock, because another call may have been preparing
        // the claim.
        let mut class_locks = Vec::new();
        if let Some(record) = read_record().filter(|record| !record.making.is_empty()) {
            class_locks = self.lock_classes(&record)?;
            let interrupted = read_record().filter(|_| condition());
            for pending in interrupted.into_iter().flat_map(|record| record.making) {
                let class = inventory
                    .iter()
                    .find(|class| class.class.name == pending.class);
                match class {
                    Some(class) => self.part_maker.roll_back(class, &pending.device)?,
                    None => tracing::warn!(
                        "{} was perhaps made by half, and class {} is not served any more: look \
                         at the host whether something is left",
                        pending.device,
                        pending.class
                    ),
                }
            }
        }
        let _locked = self.store.lock()?;
        let holds = condition();
        if holds {
            specification::remove(&self.cdi, uid)?;
            self.store.remove(uid)?;
        }
        drop(class_locks);
        Ok(holds)
    }

    /// Adds the pods for which `claim` is reserved now to the record of the claim, and removes those
    /// that are not among the `running` pods of this node either. `None` means that the running
    /// pods are not known.
    pub(crate) fn update_pods(
        &self,
        uid: &ClaimUid,
        claim: &ResourceClaim,
        running: Option<&BTreeSet<PodUid>>,
    ) -> Result<(), StoreError> {
        let _locked = self.store.lock()?;
        // A record that cannot be read is written when the claim is prepared again.
        let Some(record) = self.store.read(uid).ok().flatten() else {
            return Ok(());
        };
        let may_run = |pod: &str| running.is_none_or(|running| running.contains(&PodUid::new(pod)));
        let pods = merge_pods(record.pods.clone(), reserving_pods(claim), may_run);
        if pods == record.pods {
            return Ok(());
        }
        self.store.write(&Record { pods, ..record })
    }

    /// Opens the record file of a claim.
    pub(crate) fn open_record(&self, uid: &ClaimUid) -> Result<Option<RecordFile>, StoreError> {
        self.store.open_record(uid)
    }

    /// Reads the records of all prepared claims. Also returns the errors of those that cannot be
    /// read.
    pub fn read_records(&self) -> Result<(Vec<Record>, UnreadableRecords), StoreError> {
        self.store.read_all()
    }

    /// Returns whether every claim with a record has its CDI specification.
    pub fn have_specifications(&self) -> bool {
        let claims_with_files = specification::claims_with_files(&self.cdi);
        let recorded = self.store.uids();
        recorded.is_ok_and(|recorded| recorded.iter().all(|uid| claims_with_files.contains(uid)))
    }

    /// Writes the CDI specifications of all records, and removes specifications without a record.
    /// There are none after the node has restarted, because their directory is a tmpfs. Returns
    /// one line for each error.
    pub fn restore_specifications(
        &self,
        inventory: &[ClassDevices],
    ) -> Result<Vec<String>, StoreError> {
        let locked = self.store.lock()?;
        self.store.remove_unfinished(&locked)?;
        let (records, unreadable) = self.store.read_all()?;
        let mut problems: Vec<String> = unreadable
            .into_iter()
            .map(|(uid, reason)| format!("the record of claim {}: {reason}", uid.as_str()))
            .collect();
        // The kubelet repeats a call that was interrupted, which then writes the specification.
        for record in records.iter().filter(|record| record.making.is_empty()) {
            let result = specification::write(&self.cdi, self.description(), record, inventory);
            if let Err(error) = result {
                let error = anyhow::Error::from(error);
                problems.push(format!("claim {}: {error:#}", record.title()));
            }
        }
        for uid in specification::claims_with_files(&self.cdi) {
            // The claim of an unreadable record may be in use by a container.
            let is_known = records.iter().any(|record| record.uid == uid)
                || problems.iter().any(|line| line.contains(uid.as_str()));
            if !is_known {
                specification::remove(&self.cdi, &uid)?;
            }
        }
        Ok(problems)
    }
}

fn prepared_device(
    allocated: &AllocatedRequest,
    class: &ClassDevices,
    id: DeviceId,
) -> PreparedDevice {
    PreparedDevice {
        request: allocated.request.clone(),
        pool: allocated.pool.clone(),
        device: allocated.device.clone(),
        class: class.class.name.clone(),
        id,
        share: allocated.share.clone(),
        shares: allocated.shares,
        admin: allocated.admin,
        parameters: allocated.parameters.clone(),
    }
}

/// Builds the kubelet's answer. One CDI device stands for all devices of a request. It is named in
/// the entry of the first device only, because a container that has one device of a request has
/// all of them.
fn prepare_response(record: &Record) -> Vec<Device> {
    let mut names = specification::cdi_device_names(record);
    let mut answer = Vec::new();
    for device in &record.devices {
        let name = names.remove(&(device.request.as_str(), &device.class));
        answer.push(Device {
            request_names: vec![device.request.clone()],
            pool_name: device.pool.clone(),
            device_name: device.device.clone(),
            cdi_device_ids: name.into_iter().collect(),
            share_id: device.share.clone(),
        });
    }
    answer
}

/// Returns the pods that can use a claim: those that it is reserved for, and the known ones that may
/// run. Returns `None` if the claim is not reserved for pods alone.
fn merge_pods(
    known: Option<Vec<String>>,
    reserving: Option<Vec<String>>,
    may_run: impl Fn(&str) -> bool,
) -> Option<Vec<String>> {
    let mut pods = reserving?;
    for pod in known.into_iter().flatten() {
        if !pods.contains(&pod) && may_run(&pod) {
            pods.push(pod);
        }
    }
    // The order of the reservations may change.
    pods.sort();
    Some(pods)
}

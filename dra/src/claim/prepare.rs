//! Prepares and unprepares claims. The process may be killed after any step; the next call of the
//! kubelet completes the work.
//!
//! ```text
//! prepare:    write record ─▶ [create parts ─▶ write record] ─▶ write specification ─▶ answer
//! unprepare:  [remove incomplete parts ─▶] remove specification ─▶ remove record
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;

use daemon::kubelet_api::dra::v1::Device;
use device_class::name::{ClassName, DeviceId};
use injection_plan::cdi::{CdiHookOptions, SpecificationForm};
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::runtime::Handle;

use super::allocation::{
    AllocatedDevice, AllocationError, list_allocated_devices, list_reserving_pods,
};
use super::conflicts::{self, ClaimConflict};
use super::parameters::ParameterError;
use super::part_creator::{OtherClaims, PartCreator, PartError};
use super::record::{ClaimUid, PreparedDevice, Record};
use super::resolved_device::ResolvedDevice;
use super::specification::{self, SpecificationError};
use super::store::{ClaimStore, RecordFile, StoreError, StoreLock, UnreadableRecords};
use crate::class_devices::{ClassDevices, NamedDevice};
use crate::names;
use crate::plugin_allocations::ContainerDeviceIds;
use crate::pod_cgroups::PodUid;

/// The reason why a claim cannot be prepared. The kubelet gets its text.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("pool {0} is not of a class that this node serves for claims")]
    UnknownPool(String),
    #[error(
        "pool {pool} has no device {device} now; if that is a part, put its profile back into \
         [[parts]] of the class, or delete the pod, so that it is scheduled again"
    )]
    NoDevice { pool: String, device: String },
    #[error(transparent)]
    Conflict(#[from] ClaimConflict),
    #[error(transparent)]
    Part(#[from] PartError),
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    #[error(transparent)]
    ClaimStore(#[from] StoreError),
}

/// The reason why a claim cannot be unprepared. The kubelet gets its text.
#[derive(Debug, thiserror::Error)]
pub enum UnprepareError {
    #[error(transparent)]
    Part(#[from] PartError),
    #[error(transparent)]
    ClaimStore(#[from] StoreError),
}

/// Prepares and unprepares the claims of this node. The kubelet requires the preparation of a claim
/// before it starts a container that uses the claim.
#[derive(Debug, Clone)]
pub struct ClaimPreparer {
    pub node_name: String,
    /// The directory with the records of prepared claims.
    pub store: ClaimStore,
    /// The directory from which engines read CDI specifications, such as `/var/run/cdi`.
    pub cdi_directory: PathBuf,
    /// The path of the hook on the host, such as `/opt/boathook/current/bin/boathook-hook`.
    pub hook_path: PathBuf,
    /// The path of the hook's configuration on the host, if it is not the default one.
    pub hook_config_path: Option<PathBuf>,
    /// The path at which container engines see the host's root directory, which is usually `/`.
    pub host_root: PathBuf,
    pub part_creator: PartCreator,
}

impl ClaimPreparer {
    fn specification_form(&self) -> SpecificationForm<'_> {
        SpecificationForm {
            hook: Some(CdiHookOptions {
                program_path: &self.hook_path,
                timeout_seconds: runtime_config::HOOK_TIMEOUT_SECONDS,
                config_path: self.hook_config_path.as_deref(),
            }),
            host_root: &self.host_root,
        }
    }

    /// Prepares the claim that the API server returned, and returns its devices for the kubelet. A
    /// claim that is already prepared is prepared again, with the same result.
    pub fn prepare(
        &self,
        uid: &ClaimUid,
        claim: &ResourceClaim,
        inventory: &[ClassDevices],
    ) -> Result<Vec<Device>, PrepareError> {
        let allocated_devices = list_allocated_devices(claim, uid)?;
        let devices: Vec<ResolvedDevice<'_>> = allocated_devices
            .iter()
            .map(|device| self.resolve_device(device, inventory))
            .collect::<Result<_, _>>()?;
        // A request with admin access gets only parts that exist, so no part is created for it.
        let unready_devices = devices.iter().filter(|device| {
            device.prepared_device.is_none() && !device.allocated_device.has_admin_access
        });
        let unready_devices: Vec<&ResolvedDevice<'_>> = unready_devices.collect();
        let mut record = Record {
            version: Record::VERSION,
            uid: uid.clone(),
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            name: claim.metadata.name.clone().unwrap_or_default(),
            pods: list_reserving_pods(claim),
            devices: devices
                .iter()
                .filter_map(|device| device.prepared_device.clone())
                .collect(),
            pending_devices: unready_devices
                .iter()
                .map(|device| device.to_pending_device())
                .collect(),
        };
        let _class_locks = self.lock_classes(&record)?;
        let mut store_lock = self.store.lock_records()?;
        let (mut other_records, unreadable_records) = self.store.read_all_records()?;
        let previous_index = other_records
            .iter()
            .position(|other_record| other_record.uid == record.uid);
        let previous_record = previous_index.map(|index| other_records.remove(index));
        // The pods of the previous record stay listed. A pod that was deleted by force may still
        // use the claim, although the claim is no longer reserved for it.
        let previous_pods = previous_record
            .as_ref()
            .and_then(|record| record.pods.clone());
        record.pods = merge_pods(previous_pods, record.pods, |_| true);
        conflicts::check_conflicts(&devices, previous_record.as_ref(), &other_records)?;
        self.check_plugin_allocations(&devices, previous_record.as_ref())?;
        self.store.write_record(&record)?;
        let mut inventory = Cow::Borrowed(inventory);
        if !unready_devices.is_empty() {
            drop(store_lock);
            other_records.push(record.clone());
            let other_claims = OtherClaims {
                records: other_records,
                unreadable_records,
            };
            for device in unready_devices {
                let (current_class, id) = self.part_creator.ensure_device_ready(
                    device.class,
                    &device.allocated_device.device,
                    &other_claims,
                )?;
                record.devices.push(build_prepared_device(
                    device.allocated_device,
                    &current_class,
                    id,
                ));
                // The new state of the class contains all parts that were created so far. It
                // replaces the earlier state in the inventory.
                let mut classes = inventory.to_mut().iter_mut();
                if let Some(class) =
                    classes.find(|class| class.class.name == current_class.class.name)
                {
                    *class = current_class;
                }
            }
            record.pending_devices.clear();
            store_lock = self.store.lock_records()?;
            self.store.write_record(&record)?;
        }
        specification::write_specification(
            &self.cdi_directory,
            self.specification_form(),
            &record,
            &inventory,
        )?;
        drop(store_lock);
        Ok(build_prepare_response(&record))
    }

    /// Checks that no container still has one of the devices through the device plugin. If the
    /// kubelet checkpoint cannot be read, the devices are not checked: the slices say then that no
    /// device is free.
    fn check_plugin_allocations(
        &self,
        devices: &[ResolvedDevice<'_>],
        previous_record: Option<&Record>,
    ) -> Result<(), ClaimConflict> {
        let allocations = &self.part_creator.allocations;
        let check = |allocated_ids: &ContainerDeviceIds| {
            conflicts::check_plugin_allocations(devices, previous_record, allocated_ids)
        };
        let Ok(recorded_ids) = allocations.read_checkpoint() else {
            return Ok(());
        };
        if check(&recorded_ids).is_ok() {
            return Ok(());
        }
        // The checkpoint also lists the devices of ended pods. Only now the kubelet is asked which
        // pods run, because it limits the number of such calls.
        match Handle::current().block_on(allocations.read()) {
            Ok(allocated_ids) => check(&allocated_ids),
            Err(_) => check(&recorded_ids),
        }
    }

    /// Determines the class and the id of an allocated device on this node. Also checks the
    /// parameters of its request.
    fn resolve_device<'a>(
        &self,
        allocated_device: &'a AllocatedDevice,
        inventory: &'a [ClassDevices],
    ) -> Result<ResolvedDevice<'a>, PrepareError> {
        let has_pool = |class: &&ClassDevices| {
            names::build_pool_name(&self.node_name, &class.class.name) == allocated_device.pool
        };
        let found_class = inventory.iter().find(has_pool);
        let class =
            found_class.ok_or_else(|| PrepareError::UnknownPool(allocated_device.pool.clone()))?;
        let named_device = class.find_by_name(&allocated_device.device);
        let named_device = named_device.ok_or_else(|| PrepareError::NoDevice {
            pool: allocated_device.pool.clone(),
            device: allocated_device.device.clone(),
        })?;
        allocated_device.parameters.to_variables(&class.class)?;
        let mut divisible_devices = class.divisible_devices.iter();
        let id = match named_device {
            NamedDevice::Part(_, part) => allocated_device
                .has_admin_access
                .then(|| part.existing_id.clone())
                .flatten(),
            NamedDevice::Device(device) => {
                let is_divisible =
                    divisible_devices.any(|divisible| divisible.name == allocated_device.device);
                (allocated_device.has_admin_access || !is_divisible).then(|| device.id.clone())
            }
        };
        Ok(ResolvedDevice {
            allocated_device,
            class,
            prepared_device: id.map(|id| build_prepared_device(allocated_device, class, id)),
        })
    }

    /// Takes the locks of the classes whose parts must be created for a claim. The order is always
    /// that of the class names, because otherwise two calls could wait for each other forever.
    fn lock_classes(&self, record: &Record) -> Result<Vec<StoreLock>, StoreError> {
        let classes: BTreeSet<&ClassName> = record
            .pending_devices
            .iter()
            .map(|device| &device.class)
            .collect();
        let locks = classes
            .into_iter()
            .map(|class| self.store.lock_class(class));
        locks.collect()
    }

    /// Unprepares a claim that no container of the node uses any longer. Succeeds even if the claim
    /// is not prepared. The parts of the claim are kept until another claim needs their capacity.
    pub fn unprepare(
        &self,
        uid: &ClaimUid,
        inventory: &[ClassDevices],
    ) -> Result<(), UnprepareError> {
        self.unprepare_on_condition(uid, || true, inventory)
            .map(drop)
    }

    /// Unprepares a claim if its record is still the file `earlier_file`. Another file means that
    /// the claim was meanwhile prepared again for a new pod. Returns whether the claim was
    /// unprepared.
    pub(crate) fn unprepare_if_record_unchanged(
        &self,
        uid: &ClaimUid,
        earlier_file: &RecordFile,
        inventory: &[ClassDevices],
    ) -> Result<bool, UnprepareError> {
        self.unprepare_on_condition(
            uid,
            || self.store.is_record_unchanged(uid, earlier_file),
            inventory,
        )
    }

    /// Unprepares a claim if `condition` is true. Checks the condition after it has taken each
    /// lock, because the claim may change while this call waits for a lock. Returns whether the
    /// claim was unprepared.
    fn unprepare_on_condition(
        &self,
        uid: &ClaimUid,
        condition: impl Fn() -> bool,
        inventory: &[ClassDevices],
    ) -> Result<bool, UnprepareError> {
        let read_record = || self.store.read_record(uid).ok().flatten();
        // The record is read again after the classes were locked. Another call may have prepared
        // the claim while this call waited for the locks.
        let mut class_locks = Vec::new();
        if let Some(record) = read_record().filter(|record| !record.pending_devices.is_empty()) {
            class_locks = self.lock_classes(&record)?;
            let interrupted_record = read_record().filter(|_| condition());
            for pending_device in interrupted_record
                .into_iter()
                .flat_map(|record| record.pending_devices)
            {
                let class = inventory
                    .iter()
                    .find(|class| class.class.name == pending_device.class);
                match class {
                    Some(class) => self.part_creator.roll_back(class, &pending_device.device)?,
                    None => tracing::warn!(
                        "{} was perhaps made by half, and class {} is not served any more: look \
                         at the host whether something is left",
                        pending_device.device,
                        pending_device.class
                    ),
                }
            }
        }
        let _store_lock = self.store.lock_records()?;
        let is_condition_met = condition();
        if is_condition_met {
            if let Err(error) = self.store.read_record(uid) {
                tracing::warn!(
                    "cannot read the record of claim {}, which is removed: {error}; parts of \
                     devices that were perhaps made by half for it stay: look at the host whether \
                     something is left",
                    uid.as_str()
                );
            }
            specification::remove_specification(&self.cdi_directory, uid)?;
            self.store.remove_record(uid)?;
        }
        drop(class_locks);
        Ok(is_condition_met)
    }

    /// Updates the pods in the record of a claim. Adds the pods for which `claim` is reserved now.
    /// Removes a pod if the claim is no longer reserved for it and the pod is not in
    /// `running_pods`. If `running_pods` is `None`, the running pods are unknown, and no pod is
    /// removed.
    pub(crate) fn update_pods(
        &self,
        uid: &ClaimUid,
        claim: &ResourceClaim,
        running_pods: Option<&BTreeSet<PodUid>>,
    ) -> Result<(), StoreError> {
        let _store_lock = self.store.lock_records()?;
        // A record that cannot be read is not updated. When the kubelet prepares the claim again,
        // the record is written again.
        let Some(record) = self.store.read_record(uid).ok().flatten() else {
            return Ok(());
        };
        let may_run = |pod: &str| running_pods.is_none_or(|pods| pods.contains(&PodUid::new(pod)));
        let pods = merge_pods(record.pods.clone(), list_reserving_pods(claim), may_run);
        if pods == record.pods {
            return Ok(());
        }
        self.store.write_record(&Record { pods, ..record })
    }

    pub(crate) fn open_record(&self, uid: &ClaimUid) -> Result<Option<RecordFile>, StoreError> {
        self.store.open_record(uid)
    }

    /// Reads the records of all prepared claims. Also returns the errors of records that cannot be
    /// read.
    pub fn read_records(&self) -> Result<(Vec<Record>, UnreadableRecords), StoreError> {
        self.store.read_all_records()
    }

    /// Returns whether every claim with a record has its CDI specification.
    pub fn have_all_specifications(&self) -> bool {
        let claims_with_files = specification::list_claims_with_files(&self.cdi_directory);
        let recorded_uids = self.store.list_uids();
        recorded_uids.is_ok_and(|uids| uids.iter().all(|uid| claims_with_files.contains(uid)))
    }

    /// Writes the CDI specifications of all claims with records, and removes the specifications of
    /// other claims. After a restart of the node all specifications are missing, because their
    /// directory is a tmpfs. Returns a message for each error.
    pub fn restore_specifications(
        &self,
        inventory: &[ClassDevices],
    ) -> Result<Vec<String>, StoreError> {
        let store_lock = self.store.lock_records()?;
        self.store.remove_unfinished_files(&store_lock)?;
        let (records, unreadable_records) = self.store.read_all_records()?;
        let mut problems: Vec<String> = unreadable_records
            .iter()
            .map(|(uid, reason)| format!("the record of claim {}: {reason}", uid.as_str()))
            .collect();
        // A record with pending devices is skipped, because the preparation of its claim was
        // interrupted. The kubelet calls again to prepare the claim, and that call writes the
        // specification.
        for record in records
            .iter()
            .filter(|record| record.pending_devices.is_empty())
        {
            let result = specification::write_specification(
                &self.cdi_directory,
                self.specification_form(),
                record,
                inventory,
            );
            if let Err(error) = result {
                let error = anyhow::Error::from(error);
                problems.push(format!("claim {}: {error:#}", record.qualified_name()));
            }
        }
        for uid in specification::list_claims_with_files(&self.cdi_directory) {
            // If a record is unreadable, the specification of its claim is kept, because a
            // container may use the claim.
            let has_record = records.iter().any(|record| record.uid == uid)
                || unreadable_records
                    .iter()
                    .any(|(unreadable_uid, _)| *unreadable_uid == uid);
            if !has_record {
                specification::remove_specification(&self.cdi_directory, &uid)?;
            }
        }
        Ok(problems)
    }
}

fn build_prepared_device(
    request: &AllocatedDevice,
    class: &ClassDevices,
    id: DeviceId,
) -> PreparedDevice {
    PreparedDevice {
        request: request.request_name.clone(),
        pool: request.pool.clone(),
        device: request.device.clone(),
        class: class.class.name.clone(),
        id,
        share_id: request.share_id.clone(),
        share_count: request.share_count,
        has_admin_access: request.has_admin_access,
        parameters: request.parameters.clone(),
    }
}

/// Builds the answer to the kubelet. One CDI device represents all devices of a request. Its name
/// is only in the entry of the first device, because a container that has one device of a request
/// has all of them.
fn build_prepare_response(record: &Record) -> Vec<Device> {
    let mut cdi_names = specification::build_cdi_device_names(record);
    let mut devices = Vec::new();
    for device in &record.devices {
        let cdi_name = cdi_names.remove(&(device.request.as_str(), &device.class));
        devices.push(Device {
            request_names: vec![device.request.clone()],
            pool_name: device.pool.clone(),
            device_name: device.device.clone(),
            cdi_device_ids: cdi_name.into_iter().collect(),
            share_id: device.share_id.clone(),
        });
    }
    devices
}

/// Returns the uids of the pods that can use a claim: `reserving_pods`, for which the claim is
/// reserved, and those of `previous_pods` that may still run. Returns `None` if `reserving_pods` is
/// unknown.
fn merge_pods(
    previous_pods: Option<Vec<String>>,
    reserving_pods: Option<Vec<String>>,
    may_run: impl Fn(&str) -> bool,
) -> Option<Vec<String>> {
    let mut pods = reserving_pods?;
    for pod in previous_pods.into_iter().flatten() {
        if !pods.contains(&pod) && may_run(&pod) {
            pods.push(pod);
        }
    }
    // The list is sorted, because the order of the reservations may change.
    pods.sort();
    Some(pods)
}

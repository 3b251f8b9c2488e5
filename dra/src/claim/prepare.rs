//! Preparing and unpreparing claims. Each step may be the last of a process: whatever is
//! left, the next call makes it whole.
//!
//! ```text
//! prepare:    record ─▶ specification ─▶ answer
//! unprepare:  specification gone ─▶ record gone
//! ```

use std::path::PathBuf;

use injection_plan::cdi::{Description, ThinHook};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kubelet_api::dra::v1::Device;

use super::allocation::{AllocationError, Granted, granted};
use super::parameters::ParameterError;
use super::record::{ClaimUid, PreparedDevice, Record};
use super::specification::{self, SpecificationError};
use super::store::{Store, StoreError, Unreadable};
use crate::inventory::ClassDevices;
use crate::names;

/// Why a claim is not prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("pool {0} is not of a class that this node serves for claims")]
    NoPool(String),
    #[error("pool {pool} has no device {device} now")]
    NoDevice { pool: String, device: String },
    /// The scheduler gives a device to one claim, unless it may be shared.
    #[error("device {device} of pool {pool} is still prepared for the claim {holder}")]
    Held {
        pool: String,
        device: String,
        /// `NAMESPACE/NAME`
        holder: String,
        uid: ClaimUid,
    },
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The claims of this node.
#[derive(Debug, Clone)]
pub struct Claims {
    node: String,
    store: Store,
    cdi: PathBuf,
    hook: PathBuf,
    host_root: PathBuf,
}

impl Claims {
    /// Those with records in `store` and specifications in `cdi`. `hook` is a path of the
    /// host, whose root engines find at `host_root`.
    pub fn new(
        node: String,
        store: Store,
        cdi: PathBuf,
        hook: PathBuf,
        host_root: PathBuf,
    ) -> Self {
        Claims {
            node,
            store,
            cdi,
            hook,
            host_root,
        }
    }

    fn description(&self) -> Description<'_> {
        Description {
            hook: Some(ThinHook {
                program: &self.hook,
                timeout: runtime_config::HOOK_TIMEOUT,
            }),
            host_root: &self.host_root,
        }
    }

    /// Prepares a claim, which may be prepared already, as the API server has it.
    pub fn prepare(
        &self,
        uid: &ClaimUid,
        claim: &ResourceClaim,
        inventory: &[ClassDevices],
    ) -> Result<Vec<Device>, PrepareError> {
        let granted = granted(claim, uid)?;
        let devices = granted.iter().map(|one| self.device(one, inventory));
        let record = Record {
            version: Record::VERSION,
            uid: uid.clone(),
            namespace: claim.metadata.namespace.clone().unwrap_or_default(),
            name: claim.metadata.name.clone().unwrap_or_default(),
            devices: devices.collect::<Result<_, _>>()?,
        };
        let _locked = self.store.lock()?;
        self.check_free(&record)?;
        self.store.write(&record)?;
        specification::write(&self.cdi, self.description(), &record, inventory)?;
        Ok(answer(&record))
    }

    /// The device of an allocation.
    fn device(
        &self,
        granted: &Granted,
        inventory: &[ClassDevices],
    ) -> Result<PreparedDevice, PrepareError> {
        let of_pool =
            |class: &&ClassDevices| names::pool(&self.node, &class.class.name) == granted.pool;
        let class = inventory.iter().find(of_pool);
        let class = class.ok_or_else(|| PrepareError::NoPool(granted.pool.clone()))?;
        let device = class.named(&granted.device);
        let device = device.ok_or_else(|| PrepareError::NoDevice {
            pool: granted.pool.clone(),
            device: granted.device.clone(),
        })?;
        granted.parameters.variables(&class.class)?;
        Ok(PreparedDevice {
            request: granted.request.clone(),
            pool: granted.pool.clone(),
            device: granted.device.clone(),
            class: class.class.name.clone(),
            id: device.id.clone(),
            share: granted.share.clone(),
            admin: granted.admin,
            parameters: granted.parameters.clone(),
        })
    }

    /// The last line of defence: no other claim has one of the devices for itself.
    fn check_free(&self, record: &Record) -> Result<(), PrepareError> {
        let (others, _) = self.store.all()?;
        let others = others.iter().filter(|other| other.uid != record.uid);
        for (other, held) in
            others.flat_map(|other| other.devices.iter().map(move |one| (other, one)))
        {
            let is_same = |own: &&PreparedDevice| {
                let both = (&own.pool, &own.device) == (&held.pool, &held.device);
                both && !own.admin && !held.admin && own.share.is_none() && held.share.is_none()
            };
            if let Some(own) = record.devices.iter().find(is_same) {
                return Err(PrepareError::Held {
                    pool: own.pool.clone(),
                    device: own.device.clone(),
                    holder: other.title(),
                    uid: other.uid.clone(),
                });
            }
        }
        Ok(())
    }

    /// No container of the node uses the claim any more. One that is unknown is as it
    /// should be.
    pub fn unprepare(&self, uid: &ClaimUid) -> Result<(), StoreError> {
        let _locked = self.store.lock()?;
        specification::remove(&self.cdi, uid)?;
        self.store.remove(uid)
    }

    /// The prepared claims, and the records that cannot be read.
    pub fn prepared(&self) -> Result<(Vec<Record>, Unreadable), StoreError> {
        self.store.all()
    }

    /// Makes the specifications those of the records: after a restart of the node there are
    /// none. Returns what could not be done, a line each.
    pub fn restore(&self, inventory: &[ClassDevices]) -> Result<Vec<String>, StoreError> {
        let _locked = self.store.lock()?;
        let (records, bad) = self.store.all()?;
        let mut problems: Vec<String> = bad
            .into_iter()
            .map(|(uid, reason)| format!("the record of claim {}: {reason}", uid.as_str()))
            .collect();
        for record in &records {
            let written = specification::write(&self.cdi, self.description(), record, inventory);
            if let Err(error) = written {
                let error = anyhow::Error::from(error);
                problems.push(format!("claim {}: {error:#}", record.title()));
            }
        }
        for uid in specification::claims_with_files(&self.cdi) {
            // A record that cannot be read may be of a container that runs.
            let is_known = records.iter().any(|record| record.uid == uid)
                || problems.iter().any(|line| line.contains(uid.as_str()));
            if !is_known {
                specification::remove(&self.cdi, &uid)?;
            }
        }
        Ok(problems)
    }
}

/// What the kubelet is told. The first device of a request brings all of its CDI device: a
/// container that has one device of a request has all.
fn answer(record: &Record) -> Vec<Device> {
    let mut names = specification::names(record);
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

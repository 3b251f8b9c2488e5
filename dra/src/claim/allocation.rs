//! Reads the devices of this driver that the scheduler allocated to a claim.

use device_class::name::excerpt;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;

use super::parameters::Parameters;
use super::record::ClaimUid;
use crate::names::DRIVER;
use crate::names::SHARES;

/// The most devices of this driver that a claim may have, four times as many as Kubernetes 1.34
/// allows (`AllocationResultsMaxSize`). More would hold the lock of all claims for long.
const MAX_DEVICES: usize = 128;

/// The most entries of `config`, four times as many as Kubernetes allows: each device looks for
/// its parameters among them.
const MAX_CONFIGS: usize = 256;

/// The reason for which a claim cannot be prepared as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    #[error(
        "the claim was deleted and made again with another uid, {0}; the pod is of the old one"
    )]
    Replaced(String),
    #[error("nothing is allocated to the claim")]
    NotAllocated,
    #[error("no pod is allowed to use the claim (status.reservedFor is empty)")]
    NotReserved,
    #[error("the claim has {count} {items} of {DRIVER}; the limit of this driver is {max}")]
    TooMany {
        count: usize,
        /// The name of the items, in the plural.
        items: &'static str,
        max: usize,
    },
    #[error("the parameters for {DRIVER} in `config` of the {of}: {error}")]
    Parameters {
        /// The source of the parameters: the claim or its DeviceClass.
        of: &'static str,
        error: String,
    },
}

impl AllocationError {
    /// Returns whether the claim was replaced, so that no pod can have the prepared one.
    pub fn is_of_another(&self) -> bool {
        !matches!(
            self,
            AllocationError::Parameters { .. } | AllocationError::TooMany { .. }
        )
    }
}

/// A device that the scheduler allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedRequest {
    /// The name of the request, without its subrequest, which the kubelet does not know.
    pub request: String,
    pub pool: String,
    pub device: String,
    pub share: Option<String>,
    /// The number of shares, if the device is shared.
    pub shares: u64,
    pub admin: bool,
    pub parameters: Parameters,
}

/// Returns the devices of this driver that the claim with this uid has.
pub fn allocated_requests(
    claim: &ResourceClaim,
    uid: &ClaimUid,
) -> Result<Vec<AllocatedRequest>, AllocationError> {
    let recorded_uid = claim.metadata.uid.as_deref().unwrap_or_default();
    if recorded_uid != uid.as_str() {
        let recorded_uid = excerpt(recorded_uid);
        return Err(AllocationError::Replaced(recorded_uid));
    }
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let allocation = allocation.ok_or(AllocationError::NotAllocated)?;
    let reserved = status.and_then(|status| status.reserved_for.as_ref());
    if reserved.is_none_or(Vec::is_empty) {
        return Err(AllocationError::NotReserved);
    }
    check_count(results(allocation).count(), "devices", MAX_DEVICES)?;
    check_count(
        configs(allocation).count(),
        "entries of `config`",
        MAX_CONFIGS,
    )?;
    let requests = results(allocation).map(|result| {
        Ok(AllocatedRequest {
            request: main_request(&result.request).to_owned(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share: result.share_id.clone(),
            shares: shares(result),
            admin: result.admin_access == Some(true),
            parameters: parameters(allocation, &result.request)?,
        })
    });
    requests.collect()
}

fn results(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let devices = allocation.devices.as_ref();
    let results = devices.and_then(|devices| devices.results.as_ref());
    results
        .into_iter()
        .flatten()
        .filter(|result| result.driver == DRIVER)
}

/// Returns the parameters for this driver. Those of device classes come before those of the
/// claim.
fn configs(
    allocation: &AllocationResult,
) -> impl Iterator<Item = (&DeviceAllocationConfiguration, &OpaqueDeviceConfiguration)> {
    let devices = allocation.devices.as_ref();
    let configs = devices.and_then(|devices| devices.config.as_ref());
    configs.into_iter().flatten().filter_map(|config| {
        let opaque = config.opaque.as_ref()?;
        (opaque.driver == DRIVER).then_some((config, opaque))
    })
}

fn check_count(count: usize, items: &'static str, max: usize) -> Result<(), AllocationError> {
    match count <= max {
        true => Ok(()),
        false => Err(AllocationError::TooMany { count, items, max }),
    }
}

/// Returns the number of shares that a result takes. A capacity that cannot be read takes all
/// shares.
fn shares(result: &DeviceRequestAllocationResult) -> u64 {
    let consumed = result.consumed_capacity.iter().flatten();
    let mut consumed = consumed.filter(|(name, _)| name.rsplit('/').next() == Some(SHARES));
    let Some((_, Quantity(text))) = consumed.next() else {
        return 1;
    };
    // The scheduler writes 2000 as `2k`.
    let (number, unit) = match text.strip_suffix('k') {
        Some(thousands) => (thousands, 1000),
        None => (text.as_str(), 1),
    };
    number
        .parse::<u64>()
        .map_or(u64::MAX, |number| number.saturating_mul(unit))
}

fn main_request(request: &str) -> &str {
    request.split_once('/').map_or(request, |(main, _)| main)
}

/// Returns the parameters of a request. If several entries match, the last one counts, because
/// the entries of the device class come first. An entry may name a request, which means all
/// its subrequests, or a single subrequest. Entries for other drivers are ignored.
fn parameters(allocation: &AllocationResult, request: &str) -> Result<Parameters, AllocationError> {
    let mut parameters = Parameters::default();
    for (config, opaque) in configs(allocation) {
        let requests = config.requests.as_deref().unwrap_or_default();
        let mut request_names = requests.iter().map(String::as_str);
        let is_for_request = requests.is_empty()
            || request_names.any(|name| [request, main_request(request)].contains(&name));
        if is_for_request {
            let parsed = Parameters::deserialize(&opaque.parameters.0);
            parameters = parsed.map_err(|error| AllocationError::Parameters {
                of: match config.source.as_str() {
                    "FromClass" => "device class",
                    _ => "claim",
                },
                error: excerpt(&error.to_string()),
            })?;
        }
    }
    Ok(parameters)
}

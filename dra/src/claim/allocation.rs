//! Reads the allocation result of a ResourceClaim: the devices of this driver that the scheduler
//! allocated to the claim.

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
use crate::names::SHARES_CAPACITY;

/// The maximum number of this driver's devices in one claim: four times the limit of Kubernetes
/// 1.34 (`AllocationResultsMaxSize`). A larger claim would hold the lock of the claim store for too
/// long.
const MAX_CLAIM_DEVICES: usize = 128;

/// The maximum number of `config` entries of a claim: four times the limit of Kubernetes. The
/// number is limited, because the search for a device's parameters reads all entries.
const MAX_CONFIG_ENTRIES: usize = 256;

/// The reason why a claim cannot be prepared in the state that the API server returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    #[error(
        "the claim was deleted and made again with another uid, {0}; the pod is of the old one"
    )]
    ClaimReplaced(String),
    #[error("nothing is allocated to the claim")]
    NothingAllocated,
    #[error("no pod is allowed to use the claim (status.reservedFor is empty)")]
    NotReserved,
    #[error(
        "the claim has {count} {item_noun} of {DRIVER}; the limit of this driver is {max_count}"
    )]
    TooManyItems {
        count: usize,
        /// The plural noun for the items that are too many, such as `devices`.
        item_noun: &'static str,
        max_count: usize,
    },
    #[error("the parameters for {DRIVER} in `config` of the {source_object}: {error}")]
    Parameters {
        /// The object with the invalid parameters: the claim or its DeviceClass.
        source_object: &'static str,
        error: String,
    },
}

impl AllocationError {
    /// Returns whether the error means that no pod may use the prepared claim any more: the claim
    /// was replaced, deallocated, or is reserved for no pod.
    pub fn is_claim_unused(&self) -> bool {
        !matches!(
            self,
            AllocationError::Parameters { .. } | AllocationError::TooManyItems { .. }
        )
    }
}

/// One device of this driver that is allocated to a claim, with the parameters of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// The name of the request. The name of a subrequest is removed, because the kubelet does not
    /// know it.
    pub request_name: String,
    pub pool: String,
    pub device: String,
    pub share_id: Option<String>,
    /// The number of shares that the claim consumes. The number is meaningful only for a shared
    /// device.
    pub share_count: u64,
    pub has_admin_access: bool,
    pub parameters: Parameters,
}

/// Returns the devices of this driver that are allocated to the claim. Fails if the uid of the
/// claim in the API server is not `uid`, or if no pod may use the claim.
pub fn list_allocated_devices(
    claim: &ResourceClaim,
    uid: &ClaimUid,
) -> Result<Vec<AllocatedDevice>, AllocationError> {
    let current_uid = claim.metadata.uid.as_deref().unwrap_or_default();
    if current_uid != uid.as_str() {
        let current_uid = excerpt(current_uid);
        return Err(AllocationError::ClaimReplaced(current_uid));
    }
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let allocation = allocation.ok_or(AllocationError::NothingAllocated)?;
    let consumers = status.and_then(|status| status.reserved_for.as_ref());
    if consumers.is_none_or(Vec::is_empty) {
        return Err(AllocationError::NotReserved);
    }
    check_count(
        list_driver_results(allocation).count(),
        "devices",
        MAX_CLAIM_DEVICES,
    )?;
    check_count(
        list_driver_configs(allocation).count(),
        "entries of `config`",
        MAX_CONFIG_ENTRIES,
    )?;
    let devices = list_driver_results(allocation).map(|result| {
        Ok(AllocatedDevice {
            request_name: main_request(&result.request).to_owned(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
            share_count: parse_consumed_share_count(result),
            has_admin_access: result.admin_access == Some(true),
            parameters: find_parameters(allocation, &result.request)?,
        })
    });
    devices.collect()
}

/// Returns the uids of the pods for which the claim is reserved. Returns `None` if the claim is
/// also reserved for another kind of object, such as a group of pods.
pub(super) fn list_reserving_pods(claim: &ResourceClaim) -> Option<Vec<String>> {
    let status = claim.status.as_ref();
    let consumers = status.and_then(|status| status.reserved_for.as_ref());
    let consumers = consumers.into_iter().flatten();
    let pods = consumers.map(|consumer| {
        let is_pod = consumer.resource == "pods";
        is_pod.then(|| consumer.uid.clone())
    });
    pods.collect()
}

fn list_driver_results(
    allocation: &AllocationResult,
) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let devices = allocation.devices.as_ref();
    let results = devices.and_then(|devices| devices.results.as_ref());
    results
        .into_iter()
        .flatten()
        .filter(|result| result.driver == DRIVER)
}

/// Returns the `config` entries for this driver. The entries of the DeviceClass come before those
/// of the claim.
fn list_driver_configs(
    allocation: &AllocationResult,
) -> impl Iterator<Item = (&DeviceAllocationConfiguration, &OpaqueDeviceConfiguration)> {
    let devices = allocation.devices.as_ref();
    let configs = devices.and_then(|devices| devices.config.as_ref());
    configs.into_iter().flatten().filter_map(|config| {
        let opaque = config.opaque.as_ref()?;
        (opaque.driver == DRIVER).then_some((config, opaque))
    })
}

fn check_count(
    count: usize,
    item_noun: &'static str,
    max_count: usize,
) -> Result<(), AllocationError> {
    if count <= max_count {
        Ok(())
    } else {
        Err(AllocationError::TooManyItems {
            count,
            item_noun,
            max_count,
        })
    }
}

/// Returns the number of shares that an allocated device consumes. If the result contains no
/// number, this is 1. If the number cannot be parsed, this is the largest number, so that no other
/// claim can share the device.
fn parse_consumed_share_count(result: &DeviceRequestAllocationResult) -> u64 {
    let capacities = result.consumed_capacity.iter().flatten();
    let mut share_capacities =
        capacities.filter(|(name, _)| name.rsplit('/').next() == Some(SHARES_CAPACITY));
    let Some((_, Quantity(text))) = share_capacities.next() else {
        return 1;
    };
    // A suffix `k` is accepted, because the scheduler writes 2000 as `2k`.
    let (digits, factor) = match text.strip_suffix('k') {
        Some(thousands) => (thousands, 1000),
        None => (text.as_str(), 1),
    };
    digits
        .parse::<u64>()
        .map_or(u64::MAX, |number| number.saturating_mul(factor))
}

fn main_request(request: &str) -> &str {
    request.split_once('/').map_or(request, |(main, _)| main)
}

/// Returns the parameters of a request. A `config` entry applies to the requests or subrequests
/// that it names, or to all requests if it names none. The last entry that applies is used, so that
/// the claim overrides its DeviceClass.
fn find_parameters(
    allocation: &AllocationResult,
    request: &str,
) -> Result<Parameters, AllocationError> {
    let mut parameters = Parameters::default();
    for (config, opaque) in list_driver_configs(allocation) {
        let requests = config.requests.as_deref().unwrap_or_default();
        let mut request_names = requests.iter().map(String::as_str);
        let is_for_request = requests.is_empty()
            || request_names.any(|name| [request, main_request(request)].contains(&name));
        if is_for_request {
            let result = Parameters::deserialize(&opaque.parameters.0);
            parameters = result.map_err(|error| AllocationError::Parameters {
                source_object: match config.source.as_str() {
                    "FromClass" => "device class",
                    _ => "claim",
                },
                error: excerpt(&error.to_string()),
            })?;
        }
    }
    Ok(parameters)
}

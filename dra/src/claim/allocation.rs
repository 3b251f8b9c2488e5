//! Reads the allocation result of a ResourceClaim: the devices of this driver that the scheduler
//! allocated to it.

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

/// The maximum number of this driver's devices in one claim, four times as many as Kubernetes 1.34
/// allows (`AllocationResultsMaxSize`). A larger claim would hold the lock of all claims for too
/// long.
const MAX_DEVICES: usize = 128;

/// The maximum number of `config` entries, four times as many as Kubernetes allows. Each device
/// searches all of them for its parameters.
const MAX_CONFIGS: usize = 256;

/// The reason why the claim in the API server cannot be prepared.
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
        /// The items that are too many, as a plural noun.
        items: &'static str,
        max: usize,
    },
    #[error("the parameters for {DRIVER} in `config` of the {of}: {error}")]
    Parameters {
        /// Where the parameters come from: the claim or its DeviceClass.
        of: &'static str,
        error: String,
    },
}

impl AllocationError {
    /// Returns whether the error means that no pod may use the prepared claim any more: the claim
    /// was replaced, deallocated, or is reserved for no pod.
    pub fn is_claim_unused(&self) -> bool {
        !matches!(
            self,
            AllocationError::Parameters { .. } | AllocationError::TooMany { .. }
        )
    }
}

/// One device of an allocation result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedRequest {
    /// The name of the request. A subrequest is cut off, because the kubelet does not know it.
    pub request: String,
    pub pool: String,
    pub device: String,
    pub share: Option<String>,
    /// The number of shares that the claim consumes, if the device is shared.
    pub shares: u64,
    pub admin: bool,
    pub parameters: Parameters,
}

/// Returns the devices of this driver that are allocated to the claim with this uid.
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
    check_count(driver_results(allocation).count(), "devices", MAX_DEVICES)?;
    check_count(
        driver_configs(allocation).count(),
        "entries of `config`",
        MAX_CONFIGS,
    )?;
    let requests = driver_results(allocation).map(|result| {
        Ok(AllocatedRequest {
            request: main_request(&result.request).to_owned(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share: result.share_id.clone(),
            shares: consumed_shares(result),
            admin: result.admin_access == Some(true),
            parameters: find_parameters(allocation, &result.request)?,
        })
    });
    requests.collect()
}

/// Returns the uids of the pods that may use the claim. Returns `None` if the claim is reserved for
/// something else, such as a group of pods, too.
pub(super) fn reserving_pods(claim: &ResourceClaim) -> Option<Vec<String>> {
    let status = claim.status.as_ref();
    let consumers = status.and_then(|status| status.reserved_for.as_ref());
    let consumers = consumers.into_iter().flatten();
    let pods = consumers.map(|consumer| {
        let is_pod = consumer.resource == "pods";
        is_pod.then(|| consumer.uid.clone())
    });
    pods.collect()
}

fn driver_results(
    allocation: &AllocationResult,
) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let devices = allocation.devices.as_ref();
    let results = devices.and_then(|devices| devices.results.as_ref());
    results
        .into_iter()
        .flatten()
        .filter(|result| result.driver == DRIVER)
}

/// Returns the `config` entries for this driver. Those of the DeviceClass come before those of the
/// claim.
fn driver_configs(
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
    if count <= max {
        Ok(())
    } else {
        Err(AllocationError::TooMany { count, items, max })
    }
}

/// Returns the number of shares that a result consumes. A capacity that cannot be parsed counts as
/// all shares.
fn consumed_shares(result: &DeviceRequestAllocationResult) -> u64 {
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

/// Returns the parameters of a request. An entry applies to the named requests with all their
/// subrequests, to a single subrequest, or to all requests if it names none. The last entry that
/// applies wins, because the entries of the DeviceClass come first.
fn find_parameters(
    allocation: &AllocationResult,
    request: &str,
) -> Result<Parameters, AllocationError> {
    let mut parameters = Parameters::default();
    for (config, opaque) in driver_configs(allocation) {
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

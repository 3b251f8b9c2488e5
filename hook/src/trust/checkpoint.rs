//! Reads the allocations of one container from the kubelet checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use device_class::name::{DeviceId, ResourceName};
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;

use super::PodUid;

/// Returns the allocated devices of one container. Entries of other device plugins may have
/// any form and are skipped.
pub(super) fn devices_of(
    record: &KubeletCheckpoint,
    pod: &PodUid,
    container: &str,
) -> BTreeMap<ResourceName, BTreeSet<DeviceId>> {
    let allocations = record.allocations().filter(|allocation| {
        allocation.container == container && PodUid::parse(allocation.pod_uid).as_ref() == Some(pod)
    });
    let mut devices: BTreeMap<_, BTreeSet<DeviceId>> = BTreeMap::new();
    for allocation in allocations {
        let Ok(resource) = ResourceName::try_from(allocation.resource.to_owned()) else {
            continue;
        };
        let ids = allocation.devices.into_iter();
        let held = devices.entry(resource).or_default();
        held.extend(ids.filter_map(|id| DeviceId::try_from(id.to_owned()).ok()));
    }
    devices
}

#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing {
    use super::*;

    /// Parses a checkpoint, and reads the devices of each of its containers.
    pub fn checkpoint(bytes: &[u8]) {
        let Ok(record) = KubeletCheckpoint::parse(bytes) else {
            return;
        };
        let allocations: Vec<_> = record.allocations().collect();
        for allocation in allocations.iter().take(8) {
            let Some(pod) = PodUid::parse(allocation.pod_uid) else {
                continue;
            };
            for (resource, ids) in devices_of(&record, &pod, allocation.container) {
                for id in ids {
                    let recorded = allocations.iter().any(|other| {
                        let pod_uid = PodUid::parse(other.pod_uid);
                        let container = (pod_uid.as_ref(), other.container);
                        other.devices.contains(&id.as_str())
                            && other.resource == resource.as_str()
                            && container == (Some(&pod), allocation.container)
                    });
                    assert!(recorded, "{id} of {resource} is not recorded");
                }
            }
        }
    }
}

//! Finds the devices that the kubelet has allocated to a container, in the checkpoint of the
//! kubelet's device manager.

use std::collections::{BTreeMap, BTreeSet};

use device_class::name::{DeviceId, ResourceName};
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;

use super::PodUid;

/// Returns the ids of the devices that the kubelet allocated to the container `container_name` of a
/// pod. The keys are the names of Kubernetes resources. An entry with an invalid resource name or
/// device id is skipped, because it belongs to another device plugin.
pub(super) fn find_allocated_devices(
    checkpoint: &KubeletCheckpoint,
    pod_uid: &PodUid,
    container_name: &str,
) -> BTreeMap<ResourceName, BTreeSet<DeviceId>> {
    let allocations = checkpoint.allocations().filter(|allocation| {
        allocation.container == container_name
            && PodUid::parse(allocation.pod_uid).as_ref() == Some(pod_uid)
    });
    let mut devices: BTreeMap<_, BTreeSet<DeviceId>> = BTreeMap::new();
    for allocation in allocations {
        let Ok(resource) = ResourceName::try_from(allocation.resource.to_owned()) else {
            continue;
        };
        let ids = allocation.devices.into_iter();
        let valid_ids = ids.filter_map(|id| DeviceId::try_from(id.to_owned()).ok());
        devices.entry(resource).or_default().extend(valid_ids);
    }
    devices
}

#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing {
    use super::*;

    /// A fuzz target that parses a kubelet checkpoint and checks the devices of the first eight
    /// containers in it.
    pub fn checkpoint(bytes: &[u8]) {
        let Ok(checkpoint) = KubeletCheckpoint::parse(bytes) else {
            return;
        };
        let allocations: Vec<_> = checkpoint.allocations().collect();
        for allocation in allocations.iter().take(8) {
            let Some(pod_uid) = PodUid::parse(allocation.pod_uid) else {
                continue;
            };
            for (resource, ids) in
                find_allocated_devices(&checkpoint, &pod_uid, allocation.container)
            {
                for id in ids {
                    let is_recorded = allocations.iter().any(|other| {
                        let other_pod_uid = PodUid::parse(other.pod_uid);
                        let other_container = (other_pod_uid.as_ref(), other.container);
                        other.devices.contains(&id.as_str())
                            && other.resource == resource.as_str()
                            && other_container == (Some(&pod_uid), allocation.container)
                    });
                    assert!(is_recorded, "{id} of {resource} is not recorded");
                }
            }
        }
    }
}

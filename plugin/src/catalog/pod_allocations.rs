//! Finds the devices and the CDI specifications that pods on this node still need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use daemon::host_inventory::HostScan;
use device_class::discover::{Device, Health};
use device_class::name::{ResourceName, excerpt};
use injection_plan::cdi::SpecificationOwner;
use injection_plan::cdi::directory::specification_file;
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;

use crate::pod_cgroups::PodCgroups;

/// Finds the devices of running pods: the kubelet checkpoint lists the allocations, and a pod runs
/// only while it has a cgroup.
#[derive(Debug, Clone)]
pub(crate) struct PodAllocations {
    checkpoint_path: PathBuf,
    cgroups: PodCgroups,
}

impl PodAllocations {
    pub(crate) fn new(checkpoint_path: PathBuf, host_root: &Path) -> Self {
        PodAllocations {
            checkpoint_path,
            cgroups: PodCgroups::new(host_root),
        }
    }

    /// Returns the names of the CDI specification files that describe devices of running pods. A
    /// pod without a cgroup is ignored, because an ended pod stays in the checkpoint until the
    /// kubelet's next allocation. Returns `None` if the checkpoint cannot be read, so that the
    /// caller keeps all files.
    pub(super) fn read_used_files(&self) -> Option<BTreeSet<String>> {
        let checkpoint = match KubeletCheckpoint::read(&self.checkpoint_path) {
            Ok(checkpoint) => checkpoint,
            Err(error) if error.is_absent() => return Some(BTreeSet::new()),
            Err(_) => return None,
        };
        let allocations = checkpoint.allocations();
        let running_allocations =
            allocations.filter(|allocation| self.cgroups.may_pod_exist(allocation.pod_uid));
        let files = running_allocations.filter_map(|allocation| {
            let resource = ResourceName::try_from(allocation.resource.to_owned()).ok()?;
            Some(specification_file(
                &SpecificationOwner::Plugin.kind(&resource),
            ))
        });
        Some(files.collect())
    }

    /// Marks the devices of a scan as unhealthy that a running pod has under an id or a resource
    /// which the plugin no longer offers. This is so after the number of replicas or the resource
    /// of a class was changed. The kubelet does not know that both ids mean the same device, and
    /// would give it to another pod.
    ///
    /// If the checkpoint cannot be read, no device is marked: the kubelet itself does not start
    /// then.
    pub(crate) fn withhold_renamed_devices(&self, scan: &mut HostScan<'_>) {
        let Ok(checkpoint) = KubeletCheckpoint::read(&self.checkpoint_path) else {
            return;
        };
        let offered_resources = list_offered_resources(scan);
        let mut allocations_by_id: BTreeMap<&str, Vec<(&str, &str, &str)>> = BTreeMap::new();
        for allocation in checkpoint.allocations() {
            for id in allocation.devices {
                let entry = (allocation.resource, id, allocation.pod_uid);
                let id_without_share = id.rsplit_once("::").map(|(device_id, _)| device_id);
                for device_id in [Some(id), id_without_share].into_iter().flatten() {
                    let entries = allocations_by_id.entry(device_id).or_default();
                    entries.push(entry);
                }
            }
        }
        let mut running_states: BTreeMap<&str, bool> = BTreeMap::new();
        for class in &mut scan.classes {
            for device in &mut class.inventory.devices {
                let allocations = allocations_by_id.get(device.id.as_str());
                let outdated_allocation = allocations.into_iter().flatten().find(|allocation| {
                    let (resource, id, pod) = allocation;
                    is_outdated_allocation(device, resource, id, &offered_resources)
                        && *running_states
                            .entry(pod)
                            .or_insert_with(|| self.cgroups.may_pod_exist(pod))
                });
                if let (Some((resource, id, pod)), true) =
                    (outdated_allocation, device.health.is_healthy())
                {
                    let reason = format!(
                        "the pod {} still has it as {} of {}: it is offered when that pod has ended",
                        excerpt(pod),
                        excerpt(id),
                        excerpt(resource)
                    );
                    device.health = Health::Unhealthy { reason };
                }
            }
        }
    }
}

/// Returns the resources of the devices in a scan, and the resources that only count them.
fn list_offered_resources(scan: &HostScan<'_>) -> BTreeSet<ResourceName> {
    let classes = scan.classes.iter();
    let resources = classes.flat_map(|class| {
        let devices = class.inventory.devices.iter();
        let resources = devices.map(|device| device.resource.clone());
        resources.chain(class.class.spec.count_resource())
    });
    resources.collect()
}

/// Returns whether the kubelet allocated the device `id` of `resource` before the plugin offered it
/// as it does now. Under another resource only a device with a unique id is known to be the same.
fn is_outdated_allocation(
    device: &Device,
    resource: &str,
    id: &str,
    offered_resources: &BTreeSet<ResourceName>,
) -> bool {
    if !device.is_recorded_as(id) {
        return false;
    }
    if device.resource.as_str() == resource {
        return !device.is_offered_as(id);
    }
    let mut resources = offered_resources.iter();
    device.has_unique_id() && !resources.any(|offered| offered.as_str() == resource)
}

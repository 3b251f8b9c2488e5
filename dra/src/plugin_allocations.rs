//! Finds the devices that the kubelet allocated to containers through the device plugin.
//!
//! The kubelet checkpoint keeps the devices of an ended pod until the next allocation through a
//! device plugin. After a class was moved to ResourceClaims, there may be no such allocation.
//! Therefore a pod counts as ended if both conditions hold:
//!
//! - The kubelet's PodResources API does not list the pod's devices. This alone is not enough,
//!   because the API omits init containers, and a starting kubelet may omit pods.
//! - The pod has no cgroup. This alone is not enough, because pods may not have a cgroup yet after
//!   the node has restarted.
//!
//! A source that omits the driver's own pod is incomplete. It cannot prove that a pod has ended,
//! and is not used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use daemon::kubelet_api::podresources::{ListPodResourcesRequest, PodResources};
use daemon::kubelet_api::{POD_RESOURCES_SOCKET_PATH, query_pod_resources};
use device_class::discover::Device;
use injection_plan::kubelet_checkpoint::{self, CheckpointError, KubeletCheckpoint};

use crate::pod_cgroups::{DriverPod, PodCgroupFinder, PodUid};

/// Reads from the kubelet which devices it allocated to containers through the device plugin.
#[derive(Debug, Clone)]
pub struct PluginAllocations {
    checkpoint_path: PathBuf,
    pod_resources_socket: PathBuf,
    cgroups: PodCgroupFinder,
    /// The driver's own pod. Without it, the other two sources cannot be checked for completeness,
    /// and only the kubelet checkpoint is used.
    driver_pod: Option<DriverPod>,
}

/// The resource names and ids that the kubelet checkpoint lists for each pod.
type DevicesByPod = BTreeMap<PodUid, BTreeSet<(String, String)>>;

/// The devices that the kubelet allocated to containers. Each entry consists of a resource name and
/// the id of a device or share.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerDeviceIds(BTreeSet<(String, String)>);

/// The error if the kubelet checkpoint exists but cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub(crate) struct UnreadableCheckpoint {
    path: PathBuf,
    error: CheckpointError,
}

impl ContainerDeviceIds {
    /// Returns whether the kubelet allocated the device, or a share of it, through the device
    /// plugin. Since the allocation, the class may have got another number of replicas or another
    /// resource, or another class may have taken its place. So a device with a unique id is found
    /// under every resource, also under that of another vendor's plugin.
    pub(crate) fn contains_device(&self, device: &Device) -> bool {
        let resource = device.resource.as_str();
        let has_unique_id = device.has_unique_id();
        let matches_device = |(allocated_resource, id): &(String, String)| {
            device.is_recorded_as(id) && (has_unique_id || allocated_resource == resource)
        };
        self.0.iter().any(matches_device)
    }
}

impl PluginAllocations {
    /// `kubelet_root` is the kubelet's root directory, such as `/var/lib/kubelet`. `host_root` is
    /// the path at which this process sees the host's root directory.
    pub fn new(kubelet_root: &Path, host_root: &Path, driver_pod: Option<DriverPod>) -> Self {
        Self {
            checkpoint_path: kubelet_root
                .join("device-plugins")
                .join(kubelet_checkpoint::FILE_NAME),
            pod_resources_socket: kubelet_root.join(POD_RESOURCES_SOCKET_PATH),
            cgroups: PodCgroupFinder::new(host_root, driver_pod.as_ref()),
            driver_pod,
        }
    }

    /// Reads the devices in the kubelet checkpoint, also those of pods that have ended. Returns an
    /// empty set if there is no checkpoint, because the kubelet creates the file only at its first
    /// allocation.
    pub(crate) fn read_checkpoint(&self) -> Result<ContainerDeviceIds, UnreadableCheckpoint> {
        let devices_by_pod = self.read_devices_by_pod()?;
        Ok(ContainerDeviceIds(
            devices_by_pod.into_values().flatten().collect(),
        ))
    }

    fn read_devices_by_pod(&self) -> Result<DevicesByPod, UnreadableCheckpoint> {
        let checkpoint = match KubeletCheckpoint::read(&self.checkpoint_path) {
            Ok(checkpoint) => checkpoint,
            Err(error) if error.is_absent() => return Ok(DevicesByPod::default()),
            Err(error) => {
                let path = self.checkpoint_path.clone();
                return Err(UnreadableCheckpoint { path, error });
            }
        };
        let mut devices_by_pod = DevicesByPod::new();
        for allocation in checkpoint.allocations() {
            let pod_devices = devices_by_pod
                .entry(PodUid::new(allocation.pod_uid))
                .or_default();
            let devices = allocation.devices.iter();
            pod_devices
                .extend(devices.map(|id| (allocation.resource.to_owned(), (*id).to_owned())));
        }
        Ok(devices_by_pod)
    }

    /// Reads the devices of the containers that may run.
    pub(crate) async fn read(&self) -> Result<ContainerDeviceIds, UnreadableCheckpoint> {
        let mut devices_by_pod = self.read_devices_by_pod()?;
        if !devices_by_pod.is_empty()
            && let Some(listed_devices) = self.list_devices().await
            && devices_by_pod
                .values()
                .flatten()
                .any(|device| !listed_devices.contains(device))
            && let Some(running_pods) = self.cgroups.list_pods().await
        {
            for (pod, devices) in &mut devices_by_pod {
                if !running_pods.contains(pod) {
                    devices.retain(|device| listed_devices.contains(device));
                }
            }
        }
        Ok(ContainerDeviceIds(
            devices_by_pod.into_values().flatten().collect(),
        ))
    }

    /// Returns the devices that the PodResources API lists. Returns `None` if its list of pods does
    /// not contain the driver's own pod, because the list is then incomplete.
    async fn list_devices(&self) -> Option<BTreeSet<(String, String)>> {
        let driver_pod = self.driver_pod.as_ref()?;
        let request = ListPodResourcesRequest {};
        let answer = query_pod_resources(&self.pod_resources_socket, async |kubelet| {
            kubelet.list(request).await
        });
        let pods = answer.await?.into_inner().pod_resources;
        let is_complete = pods.iter().any(|pod| pod.name == driver_pod.name);
        is_complete.then(|| pods.into_iter().flat_map(list_pod_devices).collect())
    }
}

/// Returns the devices of a pod's containers, each as its resource name and id.
fn list_pod_devices(pod: PodResources) -> impl Iterator<Item = (String, String)> {
    let devices = pod
        .containers
        .into_iter()
        .flat_map(|container| container.devices);
    devices.flat_map(|entry| {
        let resource = entry.resource_name;
        let ids = entry.device_ids.into_iter();
        ids.map(move |id| (resource.clone(), id))
    })
}

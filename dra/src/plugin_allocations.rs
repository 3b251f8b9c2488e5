//! Finds the devices that the kubelet allocated to containers through the device plugin.
//!
//! The kubelet checkpoint keeps the devices of an ended pod until the kubelet allocates others
//! through a device plugin. That may never happen after a class was moved to ResourceClaims. A pod
//! counts as ended if
//! - the kubelet's PodResources API does not list its devices (the API omits init containers, and
//!   a starting kubelet may omit pods),
//! - and the pod has no cgroup (after the node has restarted, pods may not have one yet).
//!
//! A source that does not contain the driver's own pod is incomplete and is not used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use device_class::discover::Device;
use injection_plan::kubelet_checkpoint::{self, CheckpointError, KubeletCheckpoint};
use kubelet_api::podresources::{ListPodResourcesRequest, PodResources};
use kubelet_api::{POD_RESOURCES_SOCKET, ask_pod_resources};

use crate::pod_cgroups::{OwnPod, PodCgroups, PodUid};

/// The sources on the node that know the allocated devices.
#[derive(Debug, Clone)]
pub struct PluginAllocations {
    record: PathBuf,
    socket: PathBuf,
    cgroups: PodCgroups,
    /// The driver's own pod. Without it only the kubelet checkpoint is used.
    pod: Option<OwnPod>,
}

/// The allocated devices, each as its resource name and id.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerDeviceIds(BTreeSet<(String, String)>);

/// The kubelet checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub(crate) struct UnreadableCheckpoint {
    path: PathBuf,
    error: CheckpointError,
}

impl ContainerDeviceIds {
    /// Returns whether the device or a share of it is allocated.
    pub(crate) fn contains_device(&self, device: &Device) -> bool {
        let resource = device.resource.as_str();
        let ids = device.offered_ids();
        let is_of = |(own_resource, id): &(String, String)| {
            own_resource == resource && ids.iter().any(|offered| offered.as_str() == id)
        };
        self.0.iter().any(is_of)
    }
}

impl PluginAllocations {
    /// Takes the kubelet's root directory, the path at which this process sees the host's root
    /// directory, and the driver's own pod.
    pub fn new(kubelet: &Path, host: &Path, pod: Option<OwnPod>) -> Self {
        Self {
            record: kubelet
                .join("device-plugins")
                .join(kubelet_checkpoint::FILE_NAME),
            socket: kubelet.join(POD_RESOURCES_SOCKET),
            cgroups: PodCgroups::new(host, pod.as_ref()),
            pod,
        }
    }

    /// Reads the allocated devices. There are none before the kubelet has written its first
    /// checkpoint.
    pub(crate) async fn read(&self) -> Result<ContainerDeviceIds, UnreadableCheckpoint> {
        let record = match KubeletCheckpoint::read(&self.record) {
            Ok(record) => record,
            Err(error) if error.is_absent() => return Ok(ContainerDeviceIds::default()),
            Err(error) => {
                let path = self.record.clone();
                return Err(UnreadableCheckpoint { path, error });
            }
        };
        let mut recorded = BTreeMap::<_, BTreeSet<_>>::new();
        for allocation in record.allocations() {
            let of_pod = recorded.entry(PodUid::new(allocation.pod_uid)).or_default();
            let devices = allocation.devices.iter();
            of_pod.extend(devices.map(|id| (allocation.resource.to_owned(), (*id).to_owned())));
        }
        if !recorded.is_empty()
            && let Some(listed_devices) = self.list_devices().await
            && recorded
                .values()
                .flatten()
                .any(|device| !listed_devices.contains(device))
            && let Some(running) = self.cgroups.list_pods().await
        {
            for (pod, devices) in &mut recorded {
                if !running.contains(pod) {
                    devices.retain(|device| listed_devices.contains(device));
                }
            }
        }
        Ok(ContainerDeviceIds(
            recorded.into_values().flatten().collect(),
        ))
    }

    /// Returns the devices in the PodResources API, if its list of pods is complete.
    async fn list_devices(&self) -> Option<BTreeSet<(String, String)>> {
        let own_pod = self.pod.as_ref()?;
        let request = ListPodResourcesRequest {};
        let answer = ask_pod_resources(&self.socket, async |kubelet| kubelet.list(request).await);
        let pods = answer.await?.into_inner().pod_resources;
        let is_complete = pods.iter().any(|pod| pod.name == own_pod.name);
        is_complete.then(|| pods.into_iter().flat_map(pod_devices).collect())
    }
}

/// Returns the devices of a pod's containers, each as its resource name and id.
fn pod_devices(pod: PodResources) -> impl Iterator<Item = (String, String)> {
    let devices = pod.containers.into_iter().flat_map(|one| one.devices);
    devices.flat_map(|one| {
        let resource = one.resource_name;
        let ids = one.device_ids.into_iter();
        ids.map(move |id| (resource.clone(), id))
    })
}

//! The devices that the device plugin has given to containers.
//!
//! The kubelet's record keeps the devices of a pod that has ended until it allocates others by
//! a device plugin, which may be never when a class was moved to claims. A pod has ended if
//! - the kubelet's pod resources API does not list its devices. It does not list those of init
//!   containers either, and the list of a kubelet that starts may lack pods;
//! - and the pod has no cgroup. After a restart of the node pods may have none yet.
//!
//! Neither is used if this driver's own pod is missing there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use device_class::discover::Device;
use injection_plan::kubelet_checkpoint::{self, CheckpointError, KubeletCheckpoint};
use kubelet_api::podresources::{ListPodResourcesRequest, PodResources};
use kubelet_api::{POD_RESOURCES_SOCKET, ask_pod_resources};
use tokio::task::spawn_blocking;

/// The maximum depth at which pods' cgroups are searched. With systemd and a root cgroup of
/// the kubelet's own, the depth is five.
const MAX_DEPTH: usize = 8;

/// The sources on the node that tell which devices containers have.
#[derive(Debug, Clone)]
pub struct PluginAllocations {
    record: PathBuf,
    socket: PathBuf,
    cgroups: PathBuf,
    /// The pod of this process. Without it only the kubelet checkpoint is used.
    pod: Option<OwnPod>,
}

/// The pod of this process.
#[derive(Debug, Clone)]
pub struct OwnPod {
    pub name: String,
    pub uid: String,
}

/// The ids of the devices that containers have, each with its resource.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContainerDeviceIds(BTreeSet<(String, String)>);

/// The kubelet checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub(crate) struct UnreadableRecord {
    path: PathBuf,
    error: CheckpointError,
}

impl ContainerDeviceIds {
    /// Returns whether a container has the device or a share of it.
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
    /// Takes the kubelet's root directory, and the path at which the host's root directory is
    /// mounted.
    pub fn new(kubelet: &Path, host: &Path, pod: Option<OwnPod>) -> Self {
        Self {
            record: kubelet
                .join("device-plugins")
                .join(kubelet_checkpoint::FILE_NAME),
            socket: kubelet.join(POD_RESOURCES_SOCKET),
            cgroups: host.join("sys/fs/cgroup"),
            pod,
        }
    }

    /// Reads the ids of the devices that containers have. Without a checkpoint there are none.
    pub(crate) async fn read(&self) -> Result<ContainerDeviceIds, UnreadableRecord> {
        let record = match KubeletCheckpoint::read(&self.record) {
            Ok(record) => record,
            Err(error) if error.is_absent() => return Ok(ContainerDeviceIds::default()),
            Err(error) => {
                let path = self.record.clone();
                return Err(UnreadableRecord { path, error });
            }
        };
        let mut recorded = BTreeMap::<_, BTreeSet<_>>::new();
        for allocation in record.allocations() {
            let of_pod = recorded.entry(PodUid::new(allocation.pod_uid)).or_default();
            let devices = allocation.devices.iter();
            of_pod.extend(devices.map(|id| (allocation.resource.to_owned(), (*id).to_owned())));
        }
        if !recorded.is_empty()
            && let Some(listed_devices) = self.listed().await
            && recorded
                .values()
                .flatten()
                .any(|device| !listed_devices.contains(device))
            && let Some(running) = self.running().await
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

    /// Returns the devices that the kubelet lists, if the list has all pods of the node.
    async fn listed(&self) -> Option<BTreeSet<(String, String)>> {
        let own_pod = self.pod.as_ref()?;
        let request = ListPodResourcesRequest {};
        let answer = ask_pod_resources(&self.socket, async |kubelet| kubelet.list(request).await);
        let pods = answer.await?.into_inner().pod_resources;
        let is_complete = pods.iter().any(|pod| pod.name == own_pod.name);
        is_complete.then(|| pods.into_iter().flat_map(devices).collect())
    }

    /// Returns the pods that have a cgroup. Returns `None` if this pod has none there.
    async fn running(&self) -> Option<BTreeSet<PodUid>> {
        let own_uid = PodUid::new(&self.pod.as_ref()?.uid);
        let root = self.cgroups.clone();
        let search = move || {
            let mut pods = BTreeSet::new();
            pods_below(&root, MAX_DEPTH, &mut pods);
            pods
        };
        let pods = spawn_blocking(search).await.ok()?;
        pods.contains(&own_uid).then_some(pods)
    }
}

/// Returns the devices of a pod's containers, each as its resource and its id.
fn devices(pod: PodResources) -> impl Iterator<Item = (String, String)> {
    let devices = pod.containers.into_iter().flat_map(|one| one.devices);
    devices.flat_map(|one| {
        let resource = one.resource_name;
        let ids = one.device_ids.into_iter();
        ids.map(move |id| (resource.clone(), id))
    })
}

/// The uid of a pod. In the names of systemd slices it is written with `_` in place of `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PodUid(String);

impl PodUid {
    fn new(uid: &str) -> Self {
        Self(uid.replace('-', "_"))
    }

    /// Returns the uid of the pod to which a cgroup belongs. The name of the cgroup is
    /// `podUID` or `…-podUID.slice` (Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go).
    fn of_cgroup(name: &str) -> Option<Self> {
        match name.strip_suffix(".slice") {
            Some(slice) => slice.rsplit_once("-pod").map(|(_, uid)| Self::new(uid)),
            None => name.strip_prefix("pod").map(Self::new),
        }
    }
}

/// Searches a directory of cgroups for those of pods.
fn pods_below(directory: &Path, depth: usize, pods: &mut BTreeSet<PodUid>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|file_type| file_type.is_dir()))
    {
        match entry.file_name().to_str().and_then(PodUid::of_cgroup) {
            Some(pod) => _ = pods.insert(pod),
            None if depth > 1 => pods_below(&entry.path(), depth - 1, pods),
            None => {}
        }
    }
}

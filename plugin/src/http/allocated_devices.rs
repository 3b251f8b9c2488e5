//! Counts the allocated devices of each container, for the metrics.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use device_class::name::excerpt;
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;
use kubelet_api::ask_pod_resources;
use kubelet_api::podresources::{ListPodResourcesRequest, PodResources};

use crate::catalog::Resources;
use crate::pod_cgroups::PodCgroups;

/// The metric labels of a container. The PodResources API supplies the names of the pod, and the
/// kubelet checkpoint only its uid.
pub(super) type ContainerLabels = Vec<(&'static str, String)>;

/// Asks the kubelet for the devices of containers. All clones share the last answer.
#[derive(Debug, Clone)]
pub(crate) struct AllocatedDevices {
    /// The kubelet's socket for the PodResources API.
    socket: PathBuf,
    checkpoint: PathBuf,
    cgroups: PodCgroups,
    /// The last answer of the PodResources API. `None` means that the kubelet did not answer.
    pods: Arc<Mutex<Option<Vec<PodResources>>>>,
}

impl AllocatedDevices {
    pub(crate) fn new(socket: PathBuf, checkpoint: PathBuf, cgroups: PodCgroups) -> Self {
        AllocatedDevices {
            socket,
            checkpoint,
            cgroups,
            pods: Arc::default(),
        }
    }

    /// Asks the PodResources API for the devices of pods.
    pub(super) async fn refresh(&self) {
        let answer = ask_pod_resources(&self.socket, async |kubelet| {
            kubelet.list(ListPodResourcesRequest {}).await
        });
        let pods = answer.await.map(|answer| answer.into_inner().pod_resources);
        *self.pods.lock().unwrap_or_else(PoisonError::into_inner) = pods;
    }

    /// Counts the allocated devices of the plugin's resources for each container. If the kubelet
    /// did not answer, its checkpoint is read instead. Without a checkpoint nothing is allocated,
    /// because the kubelet writes it at its first allocation.
    pub(super) fn count(&self, inventory: &Resources) -> BTreeMap<ContainerLabels, usize> {
        let is_ours = |name: &str| inventory.keys().any(|ours| ours.as_str() == name);
        match &*self.pods.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(pods) => count_listed(pods, is_ours),
            None => self.count_recorded(is_ours),
        }
    }

    fn count_recorded(&self, is_ours: impl Fn(&str) -> bool) -> BTreeMap<ContainerLabels, usize> {
        let mut counts = BTreeMap::new();
        let checkpoint = match KubeletCheckpoint::read(&self.checkpoint) {
            Ok(checkpoint) => checkpoint,
            Err(error) if error.is_absent() => return counts,
            Err(error) => {
                let error = anyhow::Error::new(error);
                tracing::debug!("cannot use {}: {error:#}", self.checkpoint.display());
                return counts;
            }
        };
        // The kubelet removes an ended pod from the checkpoint only at its next allocation.
        let allocations = checkpoint.allocations().filter(|allocation| {
            is_ours(allocation.resource) && self.cgroups.may_exist(allocation.pod_uid)
        });
        for allocation in allocations {
            let labels = vec![
                ("resource", allocation.resource.to_owned()),
                ("pod_uid", excerpt(allocation.pod_uid)),
                ("container", excerpt(allocation.container)),
            ];
            *counts.entry(labels).or_default() += allocation.devices.len();
        }
        counts
    }
}

fn count_listed(
    pods: &[PodResources],
    is_ours: impl Fn(&str) -> bool,
) -> BTreeMap<ContainerLabels, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        for container in &pod.containers {
            let devices = container.devices.iter();
            for devices in devices.filter(|devices| is_ours(&devices.resource_name)) {
                let labels = vec![
                    ("resource", devices.resource_name.clone()),
                    ("namespace", excerpt(&pod.namespace)),
                    ("pod", excerpt(&pod.name)),
                    ("container", excerpt(&container.name)),
                ];
                *counts.entry(labels).or_default() += devices.device_ids.len();
            }
        }
    }
    counts
}

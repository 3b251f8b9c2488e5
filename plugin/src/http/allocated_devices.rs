//! Counts the allocated devices of each container, for the metrics.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use daemon::kubelet_api::podresources::{ListPodResourcesRequest, PodResources};
use daemon::kubelet_api::query_pod_resources;
use device_class::name::excerpt;
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;

use crate::catalog::Resources;
use crate::pod_cgroups::PodCgroups;

/// The metric labels of a container. If the PodResources API answers, they contain the namespace
/// and the name of the pod. If only the kubelet checkpoint can be read, they contain the pod's uid
/// instead.
pub(super) type ContainerLabels = Vec<(&'static str, String)>;

/// Counts allocated devices by the kubelet's PodResources API or, if that does not answer, by the
/// kubelet checkpoint. All clones share the last answer of the API.
#[derive(Debug, Clone)]
pub(crate) struct AllocatedDevices {
    /// The path of the kubelet's socket for the PodResources API.
    socket_path: PathBuf,
    checkpoint_path: PathBuf,
    cgroups: PodCgroups,
    /// The last answer of the PodResources API. `None` means that the kubelet did not answer.
    listed_pods: Arc<Mutex<Option<Vec<PodResources>>>>,
}

impl AllocatedDevices {
    pub(crate) fn new(socket_path: PathBuf, checkpoint_path: PathBuf, cgroups: PodCgroups) -> Self {
        AllocatedDevices {
            socket_path,
            checkpoint_path,
            cgroups,
            listed_pods: Arc::default(),
        }
    }

    /// Asks the PodResources API for the devices of all pods, and stores the answer.
    pub(super) async fn refresh_listed_pods(&self) {
        let answer = query_pod_resources(&self.socket_path, async |kubelet| {
            kubelet.list(ListPodResourcesRequest {}).await
        });
        let pods = answer.await.map(|answer| answer.into_inner().pod_resources);
        *self
            .listed_pods
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = pods;
    }

    /// Returns the number of allocated devices for each container and each of the plugin's
    /// resources. If the PodResources API did not answer, reads the kubelet checkpoint instead. If
    /// that file does not exist, the numbers are 0, because the kubelet creates the file at its
    /// first allocation.
    pub(super) fn count_devices(&self, resources: &Resources) -> BTreeMap<ContainerLabels, usize> {
        let is_plugin_resource = |name: &str| {
            resources
                .keys()
                .any(|plugin_resource| plugin_resource.as_str() == name)
        };
        match &*self
            .listed_pods
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
        {
            Some(pods) => count_in_pods(pods, is_plugin_resource),
            None => self.count_in_checkpoint(is_plugin_resource),
        }
    }

    fn count_in_checkpoint(
        &self,
        is_plugin_resource: impl Fn(&str) -> bool,
    ) -> BTreeMap<ContainerLabels, usize> {
        let mut counts = BTreeMap::new();
        let checkpoint = match KubeletCheckpoint::read(&self.checkpoint_path) {
            Ok(checkpoint) => checkpoint,
            Err(error) if error.is_absent() => return counts,
            Err(error) => {
                let error = anyhow::Error::new(error);
                tracing::debug!("cannot use {}: {error:#}", self.checkpoint_path.display());
                return counts;
            }
        };
        // Pods that have ended are skipped, because the kubelet removes them from the checkpoint
        // only at its next allocation.
        let allocations = checkpoint.allocations().filter(|allocation| {
            is_plugin_resource(allocation.resource)
                && self.cgroups.may_pod_exist(allocation.pod_uid)
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

fn count_in_pods(
    pods: &[PodResources],
    is_plugin_resource: impl Fn(&str) -> bool,
) -> BTreeMap<ContainerLabels, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        for container in &pod.containers {
            let devices = container.devices.iter();
            for devices in devices.filter(|devices| is_plugin_resource(&devices.resource_name)) {
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

//! Determines whether a pod of this node uses a prepared claim that the API server no longer has.
//!
//! A user can force the deletion of a claim while a pod uses the claim. The API server then does
//! not know that the device is in use. Only these sources know it:
//!
//! - The kubelet's checkpoint of claims (`dra_manager_state`) names the pods of each claim. The
//!   driver can read it only if the driver runs on the host or has the file mounted.
//! - The kubelet's PodResources API lists the claims of pods that have not ended, but not the
//!   claims of init containers. An answer counts only if it contains the driver's own pod, because
//!   a starting kubelet may omit pods.
//! - The cgroup of a pod exists until the pod has ended. If the driver runs in a container, this is
//!   the only sign that an init container uses the claim. The record of the claim names the pods
//!   for which the claim was reserved, unless an older version wrote the record or the claim is not
//!   reserved for pods.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use daemon::kubelet_api::podresources::{ListPodResourcesRequest, PodResources};
use daemon::kubelet_api::{POD_RESOURCES_SOCKET_PATH, query_pod_resources};
use injection_plan::kubelet_claims::{FILE_NAME, KubeletClaims};

use crate::claim::Record;
use crate::pod_cgroups::{DriverPod, PodCgroupFinder, PodUid};

/// Finds out whether pods of this node use a claim, from the kubelet's checkpoint of claims, its
/// PodResources API and the pods' cgroups.
#[derive(Debug, Clone)]
pub(crate) struct ClaimUsers {
    checkpoint_path: PathBuf,
    pod_resources_socket: PathBuf,
    /// The name of the driver's own pod. Only an answer of the PodResources API that lists this pod
    /// is complete. If the name is unknown, the API is not used.
    driver_pod_name: Option<String>,
    cgroups: PodCgroupFinder,
}

/// The answer to the question whether a pod of this node uses a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimUse {
    Unused,
    InUse,
    /// It could not be determined whether a pod uses the claim. The text is the reason.
    Unknown(String),
}

impl ClaimUsers {
    /// `kubelet_root` is the kubelet's root directory, such as `/var/lib/kubelet`. `host_root` is
    /// the path at which this process sees the host's root directory.
    pub(crate) fn new(
        kubelet_root: &Path,
        host_root: &Path,
        driver_pod: Option<&DriverPod>,
    ) -> Self {
        ClaimUsers {
            checkpoint_path: kubelet_root.join(FILE_NAME),
            pod_resources_socket: kubelet_root.join(POD_RESOURCES_SOCKET_PATH),
            driver_pod_name: driver_pod.map(|pod| pod.name.clone()),
            cgroups: PodCgroupFinder::new(host_root, driver_pod),
        }
    }

    /// Determines whether a pod of this node uses a claim. The claim is in use if any source shows
    /// a user. It is unused if the kubelet's checkpoint lists none, or if both the PodResources API
    /// and the cgroups show none.
    pub(crate) async fn determine_claim_use(&self, claim: &Record) -> ClaimUse {
        let path = self.checkpoint_path.display();
        let is_in_checkpoint = match KubeletClaims::read(&self.checkpoint_path) {
            Ok(checkpoint) => Some(checkpoint.is_claim_used(claim.uid.as_str())),
            Err(error) if error.is_absent() => None,
            Err(error) => return ClaimUse::Unknown(format!("{path}: {error}")),
        };
        let is_listed = self.list_pods().await.map(|pods| lists_claim(&pods, claim));
        let has_cgroup = self.has_running_pod(claim).await;
        match (is_in_checkpoint, is_listed, has_cgroup) {
            (Some(true), ..) | (_, Some(true), _) | (.., Ok(true)) => ClaimUse::InUse,
            (Some(false), ..) | (None, Some(false), Ok(false)) => ClaimUse::Unused,
            (None, None, _) => ClaimUse::Unknown(format!(
                "{path} does not exist here, and {} did not answer with all pods",
                self.pod_resources_socket.display()
            )),
            (None, Some(false), Err(reason)) => {
                ClaimUse::Unknown(format!("{path} does not exist here, and {reason}"))
            }
        }
    }

    /// Returns whether a pod that can use the claim has a cgroup. The error is the reason why this
    /// cannot be determined.
    async fn has_running_pod(&self, claim: &Record) -> Result<bool, String> {
        let Some(pods) = &claim.pods else {
            return Err(
                "the record of the claim, which an older version wrote or which is not reserved \
                 for pods, does not have the pods that can use it"
                    .to_owned(),
            );
        };
        let running_pods = self.find_running_pods().await.ok_or_else(|| {
            let root = self.cgroups.cgroup_root().display();
            format!(
                "this pod has no cgroup below {root}, by which the pods with init containers are \
                 known"
            )
        })?;
        Ok(pods
            .iter()
            .any(|uid| running_pods.contains(&PodUid::new(uid))))
    }

    /// Returns the pods of this node that have a cgroup. Returns `None` if the list may be
    /// incomplete.
    pub(crate) async fn find_running_pods(&self) -> Option<BTreeSet<PodUid>> {
        self.cgroups.list_pods().await
    }

    /// Returns the pods that the PodResources API lists. Returns `None` if the driver's own pod is
    /// not among them, because the list is then incomplete.
    async fn list_pods(&self) -> Option<Vec<PodResources>> {
        let driver_pod_name = self.driver_pod_name.as_ref()?;
        let request = ListPodResourcesRequest {};
        let answer = query_pod_resources(&self.pod_resources_socket, async |kubelet| {
            kubelet.list(request).await
        });
        let pods = answer.await?.into_inner().pod_resources;
        pods.iter()
            .any(|pod| pod.name == *driver_pod_name)
            .then_some(pods)
    }
}

fn lists_claim(pods: &[PodResources], claim: &Record) -> bool {
    let containers = pods.iter().flat_map(|pod| &pod.containers);
    let mut claims = containers.flat_map(|container| &container.dynamic_resources);
    claims.any(|listed_claim| {
        listed_claim.claim_name == claim.name && listed_claim.claim_namespace == claim.namespace
    })
}

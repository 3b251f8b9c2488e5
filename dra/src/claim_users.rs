//! Finds out whether a pod of this node uses a prepared claim that the API server no longer has.
//!
//! A user can delete a claim by force while a pod with it runs. Then the API server's answer says
//! nothing about the device: only the kubelet does.
//! - Its record of claims (`dra_manager_state`) has the pods of each claim. It is read if the
//!   driver runs on the host or has the file mounted.
//! - Its pod resources API lists the claims of pods that have not ended. The answer counts if it
//!   has the driver's own pod, since the list of a kubelet that starts may lack pods.

use std::path::{Path, PathBuf};

use injection_plan::kubelet_claims::{FILE_NAME, KubeletClaims};
use kubelet_api::podresources::{ListPodResourcesRequest, PodResources};
use kubelet_api::{POD_RESOURCES_SOCKET, ask_pod_resources};

use crate::claim::Record;

/// The kubelet's sources about the claims of running pods.
#[derive(Debug, Clone)]
pub(crate) struct ClaimUsers {
    record: PathBuf,
    socket: PathBuf,
    /// The name of this process's pod. Without it the pod resources API is not used.
    pod: Option<String>,
}

/// The kubelet's answer about one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimUse {
    /// No pod of this node has the claim.
    Unused,
    /// A pod has the claim.
    InUse,
    /// No source answered. The reason is for the log.
    Unknown(String),
}

impl ClaimUsers {
    /// Takes the kubelet's root directory and the name of this process's pod.
    pub(crate) fn new(kubelet: &Path, pod: Option<String>) -> Self {
        ClaimUsers {
            record: kubelet.join(FILE_NAME),
            socket: kubelet.join(POD_RESOURCES_SOCKET),
            pod,
        }
    }

    /// Asks both sources about a claim. It is unused only if a source says so, and none says
    /// that a pod has it.
    pub(crate) async fn find_use(&self, claim: &Record) -> ClaimUse {
        let path = self.record.display();
        let recorded = match KubeletClaims::read(&self.record) {
            Ok(record) => Some(record.has_pods(claim.uid.as_str())),
            Err(error) if error.is_absent() => None,
            Err(error) => return ClaimUse::Unknown(format!("{path}: {error}")),
        };
        let is_listed = self.list_pods().await.map(|pods| lists_claim(&pods, claim));
        match (recorded, is_listed) {
            (Some(true), _) | (_, Some(true)) => ClaimUse::InUse,
            (Some(false), _) | (None, Some(false)) => ClaimUse::Unused,
            (None, None) => ClaimUse::Unknown(format!(
                "{path} does not exist here, and {} did not answer with all pods",
                self.socket.display()
            )),
        }
    }

    /// Returns the pods that the kubelet lists, if this process's pod is among them.
    async fn list_pods(&self) -> Option<Vec<PodResources>> {
        let own_pod = self.pod.as_ref()?;
        let request = ListPodResourcesRequest {};
        let answer = ask_pod_resources(&self.socket, async |kubelet| kubelet.list(request).await);
        let pods = answer.await?.into_inner().pod_resources;
        pods.iter().any(|pod| pod.name == *own_pod).then_some(pods)
    }
}

fn lists_claim(pods: &[PodResources], claim: &Record) -> bool {
    let containers = pods.iter().flat_map(|pod| &pod.containers);
    let mut claims = containers.flat_map(|container| &container.dynamic_resources);
    claims.any(|used| used.claim_name == claim.name && used.claim_namespace == claim.namespace)
}

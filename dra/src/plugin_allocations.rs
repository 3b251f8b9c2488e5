//! What containers have by the device plugin.
//!
//! The kubelet's record keeps the devices of a pod that has ended until it allocates others by
//! a device plugin, which may be never when a class was moved to claims. So the kubelet is
//! asked which devices pods still have. The list that a kubelet gives while it starts may lack
//! pods: one without this driver's own pod is not used.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device_class::discover::Device;
use injection_plan::record::{self, Record, RecordError};
use kubelet_api::podresources::pod_resources_lister_client::PodResourcesListerClient;
use kubelet_api::podresources::{ListPodResourcesRequest, PodResources};
use tonic::transport::Endpoint;

/// How long the kubelet may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest answer, in bytes: it lists all devices of all pods.
const MAX_ANSWER: usize = 16 << 20;

/// Where the kubelet says it.
#[derive(Debug, Clone)]
pub struct PluginAllocations {
    record: PathBuf,
    socket: PathBuf,
    /// The name of this pod, without which the record alone counts.
    pod: Option<String>,
}

/// Resources, and ids of devices that containers have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held(BTreeSet<(String, String)>);

/// The kubelet's record cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub(crate) struct UnreadableRecord {
    path: PathBuf,
    error: RecordError,
}

impl Held {
    /// Whether a container has the device, or a share of it.
    pub(crate) fn has(&self, device: &Device) -> bool {
        let resource = device.resource.as_str();
        let ids = device.offered_ids();
        let is_of = |(of, id): &(String, String)| {
            of == resource && ids.iter().any(|offered| offered.as_str() == id)
        };
        self.0.iter().any(is_of)
    }
}

impl PluginAllocations {
    /// Those of the kubelet with this root directory.
    pub fn new(kubelet: &Path, pod: Option<String>) -> Self {
        Self {
            record: kubelet.join("device-plugins").join(record::FILE_NAME),
            socket: kubelet.join("pod-resources/kubelet.sock"),
            pod,
        }
    }

    /// Reads them. Without a record there are none.
    pub(crate) async fn read(&self) -> Result<Held, UnreadableRecord> {
        let record = match Record::read(&self.record) {
            Ok(record) => record,
            Err(error) if error.is_absent() => return Ok(Held::default()),
            Err(error) => {
                let path = self.record.clone();
                return Err(UnreadableRecord { path, error });
            }
        };
        let mut held = BTreeSet::new();
        for one in record.allocations() {
            let devices = one.devices.iter();
            held.extend(devices.map(|id| (one.resource.to_owned(), (*id).to_owned())));
        }
        if !held.is_empty()
            && let Some(now) = self.of_pods().await
        {
            held.retain(|one| now.contains(one));
        }
        Ok(Held(held))
    }

    /// What the pods of the node have, if the kubelet knows all of them.
    async fn of_pods(&self) -> Option<BTreeSet<(String, String)>> {
        let own = self.pod.as_deref()?;
        let asking = async {
            let endpoint = Endpoint::from_shared(format!("unix://{}", self.socket.display()));
            let channel = endpoint.ok()?.connect().await.ok()?;
            let mut client =
                PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_ANSWER);
            let answer = client.list(ListPodResourcesRequest {}).await.ok()?;
            Some(answer.into_inner().pod_resources)
        };
        let pods = tokio::time::timeout(TIMEOUT, asking).await.ok().flatten()?;
        let is_complete = pods.iter().any(|pod| pod.name == own);
        is_complete.then(|| pods.into_iter().flat_map(devices).collect())
    }
}

/// The resources and ids that a pod's containers have.
fn devices(pod: PodResources) -> impl Iterator<Item = (String, String)> {
    let devices = pod.containers.into_iter().flat_map(|one| one.devices);
    devices.flat_map(|one| {
        let resource = one.resource_name;
        let ids = one.device_ids.into_iter();
        ids.map(move |id| (resource.clone(), id))
    })
}

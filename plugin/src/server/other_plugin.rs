//! Whether another plugin serves a resource.
//!
//! The kubelet uses the plugin that registers last, and does not inform the other one.
//! But its pod resources API lists the healthy devices that it has now. If it lists
//! some of a resource while this plugin has no open stream for it, another plugin
//! serves the resource. When a plugin ends, the kubelet considers its devices unhealthy
//! at once. Therefore a killed predecessor of this process is not mistaken for another
//! plugin, as it would be with the kubelet's checkpoint.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use device_class::name::ResourceName;
use kubelet_api::podresources::AllocatableResourcesRequest;
use kubelet_api::podresources::pod_resources_lister_client::PodResourcesListerClient;
use tokio::sync::watch;
use tonic::transport::Endpoint;

/// How long the kubelet may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest answer, in bytes: it lists each device with its NUMA nodes.
const MAX_ANSWER: usize = 16 << 20;

/// Whether the kubelet has healthy devices of a resource. `None` if that is not known:
/// it does not serve the API, or the directory of its socket is not mounted.
pub(super) async fn has_devices(socket: &Path, resource: &ResourceName) -> Option<bool> {
    let asking = async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).ok()?;
        let channel = endpoint.connect().await.ok()?;
        let mut client =
            PodResourcesListerClient::new(channel).max_decoding_message_size(MAX_ANSWER);
        let answer = client.get_allocatable_resources(AllocatableResourcesRequest {});
        let devices = answer.await.ok()?.into_inner().devices;
        let is_of_resource = |name: &str| name == resource.as_str();
        let mut devices = devices.iter();
        Some(devices.any(|of| is_of_resource(&of.resource_name) && !of.device_ids.is_empty()))
    };
    tokio::time::timeout(TIMEOUT, asking).await.ok().flatten()
}

/// The resources that are left to other plugins. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftToOthers(watch::Sender<BTreeSet<ResourceName>>);

impl LeftToOthers {
    pub(crate) fn contains(&self, resource: &ResourceName) -> bool {
        self.0.borrow().contains(resource)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.borrow().iter().map(ToString::to_string).collect()
    }

    /// Counts a resource as left until the guard is dropped.
    pub(super) fn leave(&self, resource: ResourceName) -> Left {
        self.0.send_modify(|left| {
            left.insert(resource.clone());
        });
        Left {
            resource,
            all: self.clone(),
        }
    }
}

/// A resource that is left to another plugin.
#[derive(Debug)]
pub(super) struct Left {
    resource: ResourceName,
    all: LeftToOthers,
}

impl Drop for Left {
    fn drop(&mut self) {
        self.all.0.send_modify(|left| {
            left.remove(&self.resource);
        });
    }
}

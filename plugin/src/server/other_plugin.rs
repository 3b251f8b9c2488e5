//! Finds out whether another plugin serves a resource.
//!
//! The kubelet uses the plugin that registered last, and does not inform the other one. But its
//! PodResources API lists the healthy devices that it has now. If it lists devices of a resource
//! for which this plugin has no open stream, another plugin serves the resource. When a plugin
//! ends, the kubelet at once treats its devices as unhealthy. So a killed predecessor of this
//! process is not mistaken for another plugin, as it would be with the kubelet checkpoint.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::name::ResourceName;
use kubelet_api::ask_pod_resources;
use kubelet_api::podresources::AllocatableResourcesRequest;
use tokio::sync::watch;

/// Returns whether the kubelet has healthy devices of a resource. Returns `None` if that is
/// unknown, because the kubelet does not serve the PodResources API or the directory of its socket
/// is not mounted.
pub(super) async fn has_devices(socket: &Path, resource: &ResourceName) -> Option<bool> {
    let answer = ask_pod_resources(socket, async |kubelet| {
        kubelet
            .get_allocatable_resources(AllocatableResourcesRequest {})
            .await
    });
    let devices = answer.await?.into_inner().devices;
    let is_of_resource = |name: &str| name == resource.as_str();
    let mut devices = devices.iter();
    Some(devices.any(|of| is_of_resource(&of.resource_name) && !of.device_ids.is_empty()))
}

/// The resources that are left to other plugins. All clones share the set.
#[derive(Debug, Clone, Default)]
pub(crate) struct YieldedResources(watch::Sender<BTreeSet<ResourceName>>);

impl YieldedResources {
    pub(crate) fn contains(&self, resource: &ResourceName) -> bool {
        self.0.borrow().contains(resource)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.borrow().iter().map(ToString::to_string).collect()
    }

    /// Adds a resource. Dropping the returned guard removes it again.
    pub(super) fn insert(&self, resource: ResourceName) -> YieldedResource {
        self.0.send_modify(|left| {
            left.insert(resource.clone());
        });
        YieldedResource {
            resource,
            all: self.clone(),
        }
    }
}

/// A resource that is left to another plugin while this guard exists.
#[derive(Debug)]
pub(super) struct YieldedResource {
    resource: ResourceName,
    all: YieldedResources,
}

impl Drop for YieldedResource {
    fn drop(&mut self) {
        self.all.0.send_modify(|left| {
            left.remove(&self.resource);
        });
    }
}

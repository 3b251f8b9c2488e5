//! Detects whether another plugin serves a resource.
//!
//! The kubelet uses the plugin that registered last, and does not inform the plugin that it used
//! before. However, the kubelet's PodResources API lists the devices that are healthy now. If it
//! lists devices of a resource for which this plugin has no open stream, another plugin serves the
//! resource. When a plugin ends, the kubelet at once treats its devices as unhealthy. Therefore a
//! killed predecessor of this process is not mistaken for another plugin. In the kubelet
//! checkpoint, the two cases would look the same.

use std::collections::BTreeSet;
use std::path::Path;

use daemon::kubelet_api::podresources::AllocatableResourcesRequest;
use daemon::kubelet_api::query_pod_resources;
use device_class::name::ResourceName;
use tokio::sync::watch;

/// Returns whether the kubelet's PodResources API at `socket` lists healthy devices of a resource.
/// Returns `None` if the API cannot be called, because the kubelet does not serve it or the
/// directory of its socket is not mounted.
pub(super) async fn lists_healthy_devices(socket: &Path, resource: &ResourceName) -> Option<bool> {
    let answer = query_pod_resources(socket, async |kubelet| {
        kubelet
            .get_allocatable_resources(AllocatableResourcesRequest {})
            .await
    });
    let devices = answer.await?.into_inner().devices;
    let mut entries = devices.iter();
    Some(
        entries
            .any(|entry| entry.resource_name == resource.as_str() && !entry.device_ids.is_empty()),
    )
}

/// The resources that this plugin leaves to other plugins. All clones share one set.
#[derive(Debug, Clone, Default)]
pub(crate) struct YieldedResources(watch::Sender<BTreeSet<ResourceName>>);

impl YieldedResources {
    pub(crate) fn contains(&self, resource: &ResourceName) -> bool {
        self.0.borrow().contains(resource)
    }

    pub(crate) fn resource_names(&self) -> Vec<String> {
        self.0.borrow().iter().map(ToString::to_string).collect()
    }

    /// Adds a resource. Dropping the returned guard removes the resource from the set.
    pub(super) fn insert(&self, resource: ResourceName) -> YieldedResourceGuard {
        self.0.send_modify(|resources| {
            resources.insert(resource.clone());
        });
        YieldedResourceGuard {
            resource,
            yielded_resources: self.clone(),
        }
    }
}

/// A guard that keeps a resource in [`YieldedResources`] while it exists.
#[derive(Debug)]
pub(super) struct YieldedResourceGuard {
    resource: ResourceName,
    yielded_resources: YieldedResources,
}

impl Drop for YieldedResourceGuard {
    fn drop(&mut self) {
        self.yielded_resources.0.send_modify(|resources| {
            resources.remove(&self.resource);
        });
    }
}

//! Leaves a resource to another vendor's plugin that serves it.

use std::time::Duration;

use super::super::other_plugin::{YieldedResourceGuard, lists_healthy_devices};
use super::super::socket::is_served;
use super::Lifecycle;

/// The time between the first sign of another plugin and its confirmation. If a stream of this
/// plugin has just ended, the kubelet needs this time to remove the stream's devices, which could
/// otherwise be mistaken for another plugin's devices.
const CONFIRMATION_DELAY: Duration = Duration::from_millis(300);

/// The evidence that another plugin serves the resource: a suspicion at first, then its
/// confirmation.
pub(super) enum OtherPluginEvidence {
    Suspected,
    /// The other plugin serves the resource. The guard keeps the resource in `YieldedResources`.
    Confirmed(#[allow(dead_code, reason = "a guard")] YieldedResourceGuard),
}

impl Lifecycle {
    /// Returns whether the kubelet lists healthy devices of the resource that are not from this
    /// plugin.
    pub(super) async fn detect_other_plugin(&mut self) -> bool {
        let has_open_stream = self.stream_count.count_open_streams() > 0;
        let has_earlier_instance = self.has_earlier_instance
            || self.socket.is_none() && is_served(&self.socket_path(self.slot));
        // The listed devices may belong to an ended instance of this plugin, because the kubelet
        // keeps them during a handover.
        let is_handover = has_earlier_instance || self.handover_marker.exists();
        if self.context.should_take_over || has_open_stream || is_handover {
            self.other_plugin = None;
            return false;
        }
        let socket = self.context.kubelet_dir.pod_resources_socket_path();
        if lists_healthy_devices(&socket, &self.resource).await == Some(true) {
            return true;
        }
        if let Some(OtherPluginEvidence::Confirmed(_)) = self.other_plugin.take() {
            tracing::info!(resource = %self.resource, "the other plugin is gone, registering");
        }
        false
    }

    /// Leaves the resource to the other plugin. The first call only waits for
    /// [`CONFIRMATION_DELAY`], so that the caller checks once more whether that plugin exists. Each
    /// further call waits for a change.
    pub(super) async fn yield_resource(&mut self) {
        if self.other_plugin.is_none() {
            self.other_plugin = Some(OtherPluginEvidence::Suspected);
            tokio::time::sleep(CONFIRMATION_DELAY).await;
            return;
        }
        if let Some(OtherPluginEvidence::Suspected) = self.other_plugin {
            let guard = self.context.yielded_resources.insert(self.resource.clone());
            self.other_plugin = Some(OtherPluginEvidence::Confirmed(guard));
        }
        self.warn_once(
            "another plugin serves this resource, so it is not registered until that one ends; \
             disable the class, or take the resource over with --take-over"
                .to_owned(),
        );
        self.wait_for_change(self.context.timing.poll_interval)
            .await;
    }
}

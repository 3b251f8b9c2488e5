//! Leaves a resource to another vendor's plugin that serves it.

use std::time::Duration;

use super::super::other_plugin::{YieldedResource, has_devices};
use super::super::socket::is_served;
use super::Lifecycle;

/// The delay before another plugin is taken to serve the resource. Without the delay, a stream of
/// this plugin that has just ended could be mistaken for another plugin's devices.
const CONFIRM_DELAY: Duration = Duration::from_millis(300);

/// Another plugin that serves or seems to serve the resource.
pub(super) enum OtherPlugin {
    Suspected,
    /// The other plugin serves the resource. The guard counts the resource as left to it.
    Confirmed(#[allow(dead_code, reason = "a guard")] YieldedResource),
}

impl Lifecycle {
    /// Returns whether the kubelet has devices of the resource from another plugin.
    pub(super) async fn is_served_by_other_plugin(&mut self) -> bool {
        let is_listed = self.streams.count_open() > 0;
        let replaces_instance = self.replaces_instance
            || self.socket.is_none() && is_served(&self.socket_path(self.slot));
        // During a handover the kubelet keeps the devices of ended instances of this plugin.
        let continues = replaces_instance || self.handover_mark.exists();
        if self.context.take_over || is_listed || continues {
            self.other_plugin = None;
            return false;
        }
        let socket = self.context.kubelet.pod_resources_socket();
        if has_devices(&socket, &self.resource).await == Some(true) {
            return true;
        }
        if let Some(OtherPlugin::Confirmed(_)) = self.other_plugin.take() {
            tracing::info!(resource = %self.resource, "the other plugin is gone, registering");
        }
        false
    }

    /// Leaves the resource to the other plugin until that plugin ends.
    pub(super) async fn yield_resource(&mut self) {
        if self.other_plugin.is_none() {
            self.other_plugin = Some(OtherPlugin::Suspected);
            tokio::time::sleep(CONFIRM_DELAY).await;
            return;
        }
        if let Some(OtherPlugin::Suspected) = self.other_plugin {
            let guard = self.context.yielded.insert(self.resource.clone());
            self.other_plugin = Some(OtherPlugin::Confirmed(guard));
        }
        self.warn_once(
            "another plugin serves this resource, so it is not registered until that one ends; \
             disable the class, or take the resource over with --take-over"
                .to_owned(),
        );
        self.wait(self.context.timing.poll_interval).await;
    }
}

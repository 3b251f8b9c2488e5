//! Settings to offer one device to several containers, or several devices as one (`[sharing]`).

use serde::Deserialize;

use crate::name::EnvName;
use crate::template::Template;

/// The maximum number of shares (slots for containers) of one device. It is enough for one share
/// per MiB of 64 GB of device memory. There is a limit because the plugin sends a list of all
/// shares to the kubelet.
pub const MAX_REPLICAS: u16 = u16::MAX;

/// # `[sharing]`
///
/// Settings to offer one device to several containers, or several devices as one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "sharing"))]
pub struct Sharing {
    /// The number of containers that may have the same device at once. Each container gets one
    /// share (slot) of the device. The shares have the ids `ID::0`, `ID::1` and so on.
    pub replicas: Option<ReplicaCount>,
    /// Instead of `replicas`: a template for this number. It may use the attributes of a device.
    #[serde(rename = "replicas_from")]
    pub replica_count_template: Option<Template>,
    /// Whether all devices of a resource are offered as one device. Its id is the name of the
    /// resource without the domain. A container that gets this device gets all of them.
    #[serde(default, rename = "combine")]
    pub combines_resource: bool,
    /// A template, such as the serial number of a card. All devices of a resource with the same
    /// value are offered as one device, whose id is the value. The combined device is unhealthy if
    /// one of its devices is unhealthy.
    #[serde(rename = "combine_by")]
    pub combination_key: Option<Template>,
    /// The variable that the plugin sets to the number of shares that are allocated to the
    /// container.
    #[serde(rename = "count_env")]
    pub container_shares_env: Option<EnvName>,
    /// The variable that the plugin sets to the number of shares that the kubelet allocates in one
    /// call of `Allocate`. This is the number of shares for one container.
    #[serde(rename = "call_count_env")]
    pub call_shares_env: Option<EnvName>,
    /// A second resource, which cannot be allocated. Its quantity on a node is the number of
    /// devices. For example, a scheduler needs it to divide a node's memory by the number of GPUs.
    pub count_resource: Option<Template>,
    /// Whether all shares of one container must be of one device. The plugin chooses the device
    /// with the fewest free shares that still has enough. An allocation with shares of several
    /// devices is refused.
    #[serde(default, rename = "one_device")]
    pub requires_one_device: bool,
}

/// A number of containers that share a device, from 1 to [`MAX_REPLICAS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct ReplicaCount(u16);

impl ReplicaCount {
    pub fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<i64> for ReplicaCount {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match u16::try_from(number) {
            Ok(count @ 1..=MAX_REPLICAS) => Ok(ReplicaCount(count)),
            _ => Err(format!(
                "{number} replicas is not between 1 and {MAX_REPLICAS}"
            )),
        }
    }
}

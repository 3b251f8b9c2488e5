//! Settings to offer one device to several containers, or several devices as one.

use serde::Deserialize;

use crate::name::EnvName;
use crate::template::Template;

/// The maximum number of replicas of a device, which is enough for one replica per MiB of a device
/// with 64 GB of memory. It is limited, because the plugin sends a list of all replicas to the
/// kubelet.
pub const MAX_REPLICAS: u16 = u16::MAX;

/// # `[sharing]`
///
/// Settings to offer one device to several containers, or several devices as one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "sharing"))]
pub struct Sharing {
    /// The number of containers that may have a device at once. Each container gets one share of
    /// the device, with an id `ID::0`, `ID::1` and so on.
    pub replicas: Option<ReplicaCount>,
    /// The number of replicas, by template over the attributes of a device.
    #[serde(rename = "replicas_from")]
    pub replica_count_template: Option<Template>,
    /// Whether all devices of a resource are combined into one device, whose id is the resource's
    /// name without the domain. A container with this device gets all of them.
    #[serde(default, rename = "combine")]
    pub combines_resource: bool,
    /// A template, such as the serial number of a card. Devices of a resource with the same value
    /// are combined into one device, whose id is the value. The combined device is unhealthy if one
    /// of the devices is.
    #[serde(rename = "combine_by")]
    pub combination_key: Option<Template>,
    /// The variable that the plugin sets to the number of allocated replicas.
    #[serde(rename = "count_env")]
    pub container_shares_env: Option<EnvName>,
    /// The variable that the plugin sets to the number of replicas that the kubelet allocates in
    /// one call of `Allocate`, which is the number for one container.
    #[serde(rename = "call_count_env")]
    pub call_shares_env: Option<EnvName>,
    /// A second resource, whose quantity on a node is the number of devices, such as for a
    /// scheduler that divides memory by the number of GPUs. The resource cannot be allocated.
    pub count_resource: Option<Template>,
    /// Whether all replicas of one container come from one device: the device with the fewest free
    /// replicas that still has enough. An allocation of shares of several devices is refused.
    #[serde(default, rename = "one_device")]
    pub requires_one_device: bool,
}

/// A number of replicas from 1 to [`MAX_REPLICAS`].
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

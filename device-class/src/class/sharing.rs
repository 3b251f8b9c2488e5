//! One device for several containers, or several devices as one.

use serde::Deserialize;

use crate::name::EnvName;
use crate::template::Template;

/// The most replicas that a device may have: the kubelet is told of each.
pub const MAX_REPLICAS: u16 = 4096;

/// What a resource's name ends with whose devices are shared, where the class
/// tells the two apart.
pub const SHARED_SUFFIX: &str = ".shared";

/// # `[sharing]`
///
/// One device for several containers, or several devices as one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "sharing"))]
pub struct Sharing {
    /// So many containers may have a device at once. Each gets an id of its
    /// own, `ID::0`, `ID::1` and so on.
    #[serde(default)]
    pub replicas: Option<ReplicaCount>,
    /// As many as this says, by template.
    #[serde(default)]
    pub replicas_from: Option<Template>,
    /// All devices of a resource are one: whoever gets it gets them all. Its id
    /// is the resource's name without the domain.
    #[serde(default)]
    pub combine: bool,
    /// The variable in which the plugin tells how many replicas were allocated.
    #[serde(default)]
    pub count_env: Option<EnvName>,
    /// A device of which there is more than one replica counts for a resource
    /// of its own: the name with `.shared`. So a pod can tell a share from a
    /// whole device.
    #[serde(default)]
    pub shared_suffix: bool,
    /// The replicas that one container has are all of one device: the one with
    /// the fewest free replicas that are enough. Shares of several devices are
    /// refused.
    #[serde(default)]
    pub one_device: bool,
    /// The most replicas that one container may have. With 1 a pod is told that
    /// two shares of a device are no more of it.
    #[serde(default)]
    pub max_per_container: Option<ReplicaCount>,
}

/// A number of replicas from 1 to [`MAX_REPLICAS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct ReplicaCount(u16);

impl ReplicaCount {
    /// The number.
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
                "{number} replicas are not from 1 to {MAX_REPLICAS}"
            )),
        }
    }
}

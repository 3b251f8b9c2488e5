//! The choice of devices that the plugin recommends to the kubelet.

use serde::Deserialize;

/// # `[allocate]`
///
/// The choice of devices that the plugin recommends to the kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "allocate"))]
pub struct Allocate {
    /// The choice of devices that the plugin recommends for one container. `packed` (the default)
    /// takes as few devices, groups and NUMA nodes as possible, best fit. `spread` takes each share
    /// from another device. `spread-shares` takes each share of a shared device from the device
    /// with the fewest shares in use, and chooses devices that are not shared as `packed` does.
    #[serde(default)]
    pub placement: PlacementPolicy,
}

/// The rule by which the plugin recommends devices for one container to the kubelet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum PlacementPolicy {
    /// The plugin recommends devices near each other: from as few devices, groups and NUMA nodes as
    /// possible, and from those with the fewest unused devices first.
    #[default]
    Packed,
    /// The plugin recommends devices apart from each other, so that NUMA nodes, groups and hardware
    /// are used evenly.
    Spread,
    /// The plugin recommends shares of different devices, and whole devices near each other.
    SpreadShares,
}

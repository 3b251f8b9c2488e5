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
    /// The choice of devices that the plugin recommends for one container. `packed`: as few
    /// devices, groups and NUMA nodes as possible, best fit. `spread`: each share from another
    /// device. `spread-shares`: each share of a shared device from the device with the fewest
    /// shares in use; `packed` for devices that are not shared. Default `packed`.
    #[serde(default)]
    pub placement: Preference,
}

/// The devices that are preferred for one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Preference {
    /// Devices near each other: few devices, groups and NUMA nodes, with few unused devices in
    /// them.
    #[default]
    Packed,
    /// Devices apart from each other, so that NUMA nodes, groups and hardware are used evenly.
    Spread,
    /// Shares of different devices, but whole devices near each other.
    SpreadShares,
}

//! The rule by which the plugin recommends devices to the kubelet (`[allocate]`).

use serde::Deserialize;

/// # `[allocate]`
///
/// The rule by which the plugin recommends devices to the kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "allocate"))]
pub struct Allocate {
    /// The devices that the plugin recommends for one container. `packed` (the default) takes as
    /// few devices, groups and NUMA nodes as possible, and first those with the fewest unused
    /// devices. `spread` takes each share (a slot of a shared device) from another device.
    /// `spread-shares` takes each share from the device with the fewest shares in use; devices that
    /// are not shared are chosen as for `packed`.
    #[serde(default)]
    pub placement: PlacementPolicy,
}

/// The rule by which the plugin recommends devices for one container to the kubelet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum PlacementPolicy {
    /// The plugin recommends devices near each other: as few devices, groups and NUMA nodes as
    /// possible, and first those with the fewest unused devices.
    #[default]
    Packed,
    /// The plugin recommends devices apart from each other, so that containers use NUMA nodes,
    /// groups and hardware evenly.
    Spread,
    /// The plugin recommends shares (slots of shared devices) on different devices. Devices that
    /// are not shared are chosen near each other, as for `Packed`.
    SpreadShares,
}

//! Which devices the plugin recommends to the kubelet.

use serde::Deserialize;

/// # `[allocate]`
///
/// Which devices the plugin recommends to the kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "allocate"))]
pub struct Allocate {
    /// Which devices the plugin recommends for one container. `packed`: as few
    /// devices, groups and NUMA nodes as possible, best fit. `spread`: each
    /// share from another device. `spread-shares`: where devices are shared, each share from
    /// the device of which the fewest are in use; else `packed`. Default `packed`.
    #[serde(default)]
    pub placement: Preference,
}

/// Which devices of one container go well together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Preference {
    /// Near each other: few devices, groups and NUMA nodes, with little left
    /// over.
    #[default]
    Packed,
    /// Apart from each other: NUMA nodes, groups and hardware are used evenly.
    Spread,
    /// Shares apart from each other, whole devices together.
    SpreadShares,
}

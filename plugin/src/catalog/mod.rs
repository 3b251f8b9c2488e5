//! Builds the node's resources with their devices from scans of the host, and writes the CDI
//! specifications that describe these devices. This module does not depend on the gRPC servers.

mod cdi_files;
mod changes;
mod claimed_devices;
#[cfg(test)]
pub(crate) mod fixture;
mod grace_period;
mod id_index;
mod inventory_watcher;
mod message_budget;
mod pod_allocations;
mod resource;
mod resource_devices;
mod scan;
mod scan_pause;
mod yaml_kind;

use std::collections::BTreeMap;
use std::sync::Arc;

use device_class::name::ResourceName;

pub(crate) use cdi_files::CdiFiles;
pub(crate) use changes::describe_changes;
pub(crate) use claimed_devices::ClaimedDevices;
pub(crate) use grace_period::GracePeriod;
pub(crate) use inventory_watcher::InventoryWatcher;
pub(crate) use pod_allocations::PodAllocations;
#[cfg(test)]
pub(crate) use resource::ResourceProperties;
pub(crate) use resource::{AdvertisedDevice, Resource};
#[cfg(test)]
pub(crate) use scan::ResourceScan;
pub(crate) use scan::build_resources;
pub(crate) use scan_pause::{ScanPause, ScanPauseGuard};

/// The resources of the node, by name.
pub(crate) type Resources = BTreeMap<ResourceName, Arc<Resource>>;

//! The classes of this host, their resources and devices, and notification of
//! changes. Nothing here depends on the gRPC servers.

mod cdi_files;
mod changes;
mod claimed;
#[cfg(test)]
pub(crate) mod fixture;
mod found;
mod grace_period;
mod id_index;
mod inventory_watcher;
mod message_budget;
mod resource;
mod scan;
mod scan_pause;
mod used_files;
mod yaml_kind;

use std::collections::BTreeMap;
use std::sync::Arc;

use device_class::name::ResourceName;

pub(crate) use cdi_files::CdiFiles;
pub(crate) use changes::changes;
pub(crate) use claimed::Claimed;
pub(crate) use grace_period::GracePeriod;
pub(crate) use inventory_watcher::InventoryWatcher;
#[cfg(test)]
pub(crate) use resource::Terms;
pub(crate) use resource::{AdvertisedDevice, Resource};
#[cfg(test)]
pub(crate) use scan::Scan;
pub(crate) use scan::scan;
pub(crate) use scan_pause::{ScanPause, ScanPauseGuard};
pub(crate) use used_files::PodAllocations;

pub(crate) type Resources = BTreeMap<ResourceName, Arc<Resource>>;

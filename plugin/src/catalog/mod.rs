//! What this host has to offer: classes, their resources, their devices, and
//! the word of it when that changes. Nothing here knows of gRPC's servers.

mod changes;
mod classes;
#[cfg(test)]
pub(crate) mod fixture;
mod grants;
mod keeper;
mod patience;
mod resource;
mod room;
mod scan;
mod settle;

use std::collections::BTreeMap;
use std::sync::Arc;

use device_class::name::ResourceName;

pub use changes::{Change, changes};
pub use classes::Classes;
pub use grants::Grants;
pub use keeper::{Keeper, Source};
pub use resource::{AdvertisedDevice, Resource, Terms};
pub use scan::{Memory, Scan, scan};
pub use settle::Settle;

/// All resources of the host.
pub type Inventory = BTreeMap<ResourceName, Arc<Resource>>;

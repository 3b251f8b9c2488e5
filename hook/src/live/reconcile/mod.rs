//! Makes containers have their desired devices.

mod arrivals;
mod change;
mod host_snapshot;
mod predicted_files;
mod replace_devices;
mod stale_rules;

pub(super) use change::{ContainerChange, is_injected, remove_files_of};
pub(super) use host_snapshot::{FollowedDevice, HostSnapshot, PresentDevice, PresentNode};
pub(super) use replace_devices::replace_devices;
pub(super) use stale_rules::{RemovedDevices, find_removed, remove_nodes, revoke_stale};

//! Compares the devices of an attachment record with the host and with the container. Then changes
//! the container and its record so that they match the host. This module sends no announcements.

mod arrivals;
mod change;
mod detached_files;
mod host_snapshot;
mod other_links;
mod predicted_files;
mod replace_devices;
mod stale_rules;
mod unfulfilled;

pub(super) use arrivals::copy_with_present_devices;
pub(super) use change::{ContainerChange, is_in_injected_dir};
pub(super) use detached_files::remove_detached_files;
pub(super) use host_snapshot::{FollowedDevice, HostDevice, HostDeviceNode, HostSnapshot};
pub(super) use other_links::OtherLinks;
pub(super) use replace_devices::replace_devices;
pub(super) use stale_rules::{
    RemovedDevices, find_removed_devices, remove_nodes, revoke_stale_rules,
    revoke_stale_rules_without_lock,
};
pub(crate) use unfulfilled::{find_unfulfilled_requests, has_access_to_all_devices};

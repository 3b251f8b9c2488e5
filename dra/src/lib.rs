//! The driver for ResourceClaims (Dynamic Resource Allocation, DRA). It publishes a node's devices
//! as ResourceSlices, and prepares allocated claims with CDI specifications. The kubelet calls it
//! over gRPC (NodePrepareResources, NodeUnprepareResources, health), from one DaemonSet pod on each
//! node. The driver never enters a container: the hook, which the CDI specification names, injects
//! the devices. The driver writes ResourceSlices to the API server, and Events of its node.
//!
//! ```text
//! classes ─┐
//! host ────┴▶ inventory ─┬▶ slice: ResourceSlices ─▶ API server, scheduler ─▶ ResourceClaim
//!                        └▶ claim: a record and a CDI specification ◀─ kubelet: prepare
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

mod api_client;
mod api_error;
pub mod claim;
mod claim_api;
mod claim_cleanup;
mod claim_users;
mod class_devices;
pub mod cli;
pub mod device_class;
mod inventory;
mod metrics;
pub mod names;
mod node_events;
mod pages;
mod plugin_allocations;
mod pod_cgroups;
mod run;
mod service;
pub mod slice;
mod sockets;

pub use class_devices::{ClassDevices, DivisibleDevice};
pub use inventory::Inventory;
pub use metrics::Metrics;
pub use run::run;

//! The driver of resource claims (Dynamic Resource Allocation). The hook injects the
//! devices, as it does those of the plugin.
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

mod api_error;
pub mod claim;
mod claim_api;
mod claim_users;
mod class_devices;
pub mod cli;
mod collect;
pub mod device_class;
mod inventory;
mod metrics;
pub mod names;
mod pages;
mod plugin_allocations;
mod run;
mod service;
pub mod slice;
mod sockets;

pub use class_devices::{ClassDevices, DivisibleDevice};
pub use inventory::Inventory;
pub use metrics::Metrics;
pub use run::run;

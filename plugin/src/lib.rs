//! The kubelet device plugin. It scans the host, writes CDI specifications, registers each
//! resource with the kubelet, and answers ListAndWatch, GetPreferredAllocation and Allocate. The
//! kubelet calls it over gRPC, from one DaemonSet pod on each node. It never enters a container
//! and has no access to the API server: Allocate only names devices, and the hook injects them.
//!
//! ```text
//! classes ─┐
//! host ────┴▶ catalog ─Resources─▶ supervisor ─Resource─▶ server ─▶ service
//!             (what exists)        (which servers run)    (socket,  (the kubelet's
//!                                                          Register) calls)
//! ```
//!
//! The module `holders` detects allocations of devices that other running pods still have.
//!
//! All tasks run on one thread, except for device scans and other reads that may block. Tasks pass
//! state to each other by watch channels, which hold only the newest value, so that a slow reader
//! does not delay others.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

mod catalog;
pub mod cli;
mod device_check;
mod engine_check;
mod holders;
mod http;
mod kubelet_dir;
mod list;
mod metrics;
mod node_labels;
mod pod_cgroups;
mod replace;
mod run;
mod server;
mod service;
mod supervisor;
mod trusted_pods;

pub use device_check::{ContainerDevices, OpenedDevice, check_container_devices};
pub use engine_check::check_engine;
pub use list::Listing;
pub use replace::replace;
pub use run::run;

//! The kubelet device plugin. It only names devices; the hook injects them.
//!
//! ```text
//! classes ─┐
//! host ────┴▶ catalog ─Resources─▶ supervisor ─Resource─▶ server ─▶ service
//!             (what exists)        (which servers run)    (socket,  (the kubelet's
//!                                                          Register) calls)
//! ```
//!
//! `holders` compares allocations with the pods that run.
//!
//! Everything runs on one thread, except for device scans, which may block.
//! State is passed by watch channels: only the newest value counts, and a slow
//! reader does not delay others.
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
mod run;
mod server;
mod service;
mod signals;
mod supervisor;
mod trusted_pods;

pub use device_check::{OpenedDevice, open_devices};
pub use engine_check::check_engine;
pub use list::Listing;
pub use run::run;

//! The kubelet device plugin that names devices and nothing more.
//!
//! ```text
//! classes ─┐
//! host ────┴▶ catalog ─Inventory─▶ supervisor ─Resource─▶ server ─▶ service
//!             (what is there)      (who serves)           (socket,  (the kubelet's
//!                                                          Register) calls)
//! ```
//!
//! Everything runs on one thread, except for the looks at the host, which may
//! block. State goes through watch channels: the newest counts, and nobody
//! waits for a slow reader.
#![forbid(unsafe_code)]

pub mod api;
pub mod catalog;
pub mod dir_watch;
pub mod host_program;
pub mod hotplug;
pub mod http;
pub mod kubelet_dir;
pub mod last_words;
pub mod list;
pub mod metrics;
pub mod nudge;
pub mod run;
pub mod server;
pub mod service;
pub mod supervisor;

//! The classes of this host, their devices with the health of each, and notifications of
//! changes. The device plugin and the DRA driver use this crate to offer devices to the
//! kubelet.
//!
//! ```text
//! class files ─▶ Classes ─┐
//! host ───────────────────┴▶ scan_host ─▶ HostScan: devices with their health, control nodes
//! ```
//!
//! [`HostWatcher`] reads the class files and the host again when they change.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

mod classes;
mod dir_watch;
mod facts_programs;
mod faults;
mod health_program;
mod health_programs;
mod health_scan;
mod host_files;
pub mod host_program;
mod hotplug;
mod kernel_log;
mod mounted;
mod node_config;
mod notify;
mod quick_look;
mod slow_scan;
mod watcher;

pub use classes::{Classes, UnmountedClasses};
pub use dir_watch::{Interest, Notice};
pub use faults::Faults;
pub use health_scan::{ClassError, ClassScan, HostScan, ScanMemory, scan_host};
pub use hotplug::watch_directories;
pub use node_config::NodeConfig;
pub use notify::{Notifications, Notifier};
pub use slow_scan::ScanProgress;
pub use watcher::{HostWatcher, ScanOutcome, WatcherTask};

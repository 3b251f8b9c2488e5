//! Scans this host for the devices of its classes, determines the health of each device, and
//! notifies of changes. The device plugin and the DRA driver use this crate to offer devices to the
//! kubelet. The crate runs the programs that classes name, but never enters a container. It writes
//! only the files with the facts (properties of the driver).
//!
//! ```text
//! class files ─▶ Classes ─┐
//! host ───────────────────┴▶ scan_host ─▶ HostScan: devices with their health, control nodes
//! ```
//!
//! [`HostWatcher`] loads the class files and scans the host again when they change.

mod classes;
mod dir_watch;
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
mod property_programs;
mod response_check;
mod slow_scan;
mod watcher;

pub use classes::{Classes, UnmountedClasses};
pub use dir_watch::{DirectoryChange, WatchedEvents};
pub use faults::FaultLog;
pub use health_scan::{ClassError, ClassScan, HostScan, ScanState, scan_host};
pub use hotplug::watch_directories;
pub use node_config::NodeConfig;
pub use notify::{Notifications, Notifier};
pub use slow_scan::ScanProgress;
pub use watcher::{DueWork, HostWatcher, ScanOutcome};

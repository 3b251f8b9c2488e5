//! The shared code of the programs that run as containers of a cluster or as services of a host:
//! the plugin, the DRA driver, the installer, the scheduler extender and the webhook. The hook must
//! not use this crate: the hook is started for each container and must be small.
//!
//! * [`command_line`] reports errors, prints output, and has the options for the log and the node.
//! * [`http_server`] serves metrics, probes and reviews.
//! * [`kubelet_api`] has the gRPC interfaces of the kubelet.
//! * [`host_inventory`] scans the host for devices and notifies of changes.
//! * [`process`] starts and ends a program.
//! * [`signals`] ends a program, and reloads its classes.
//!
//! Each module but the first is a feature of the crate, so that a program links only what it uses.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

pub mod command_line;
#[cfg(feature = "inventory")]
pub mod host_inventory;
#[cfg(feature = "http")]
pub mod http_server;
#[cfg(feature = "kubelet")]
pub mod kubelet_api;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "signals")]
pub mod signals;

//! The OCI hook, which a container runtime calls for every container, the wrapper runtime, and the
//! commands for administrators. The hook puts the devices that a container is authorized to use
//! into its root file system, and allows them in its cgroup. It executes no program of a container
//! and follows no link of a container to the host. `ARCHITECTURE.md` shows the data flow.
//!
//! The programs use [`main`], [`hook_main`], [`runtime_main`] and [`command_line`]. Everything
//! else is public for the tests in `tests/` and for the fuzz targets.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

mod apply;
mod authorization;
mod cgroup;
mod cli;
mod command;
pub mod container;
mod exit;
mod installation;
mod live;
mod loader;
mod log;
pub mod mount;
mod mountinfo;
pub mod oci;
pub mod planner;
mod process;
mod start;
#[allow(unsafe_code, reason = "system calls that nix does not have")]
mod sys;
mod trust;
mod wrapper;

pub use command::main;
pub use start::main as hook_main;
pub use sys::memory::SingleThreadMemory;
pub use wrapper::main as runtime_main;

/// Returns the command line of `boathook`. Manual pages and shell completions are generated from
/// it.
pub fn command_line() -> clap::Command {
    <cli::Cli as clap::CommandFactory>::command()
}

/// Functions of private modules that the fuzz targets in `tests/fuzz` call.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::cgroup::device_program;
    pub use crate::mountinfo::fuzzing::mountinfo;
    pub use crate::trust::{checkpoint, forged_annotations};
}

//! The hook: a container runtime calls it for every container. It puts the
//! devices that the container holds into its root, and allows them in its
//! cgroup. `ARCHITECTURE.md` draws the data flow.
//!
//! The programs use [`main`], [`runtime_main`] and [`command_line`]; what else is public is
//! for the tests in `tests/` and the fuzz targets.

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
#[allow(unsafe_code, reason = "system calls that nix does not have")]
mod sys;
mod trust;
mod wrapper;

pub use command::main;
pub use wrapper::main as runtime_main;

/// The command line of `boathook`, for its manual pages and completions.
pub fn command_line() -> clap::Command {
    <cli::Cli as clap::CommandFactory>::command()
}

/// Fuzz targets of private modules (`tests/fuzz` calls them).
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::cgroup::device_program;
    pub use crate::mountinfo::fuzzing::mountinfo;
    pub use crate::trust::{checkpoint, forged_annotations};
}

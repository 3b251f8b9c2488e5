//! The hook: called by a container runtime for every container, it puts the
//! devices that the container holds into its root, and lets its cgroup use
//! them. `ARCHITECTURE.md` draws the way of the data.

pub mod apply;
pub mod cgroup;
pub mod cli;
pub mod command;
pub mod container;
pub mod exit;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod loader;
pub mod log;
pub mod mount;
mod mountinfo;
pub mod oci;
pub mod planner;
pub mod process;
#[allow(unsafe_code, reason = "system calls that nix does not have")]
mod sys;
pub mod trust;
pub mod wrapper;

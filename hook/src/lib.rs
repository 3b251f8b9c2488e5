//! The OCI hook, which a container runtime calls for every container, and the wrapper runtime. The
//! hook puts the devices that a container is authorized to use into its root file system, and
//! allows them in its cgroup. It executes no program of a container, and follows no symbolic link
//! in a container out to the host. `ARCHITECTURE.md` shows the data flow.
//!
//! The programs `boathook-hook` and `boathook-runtime` call [`hook_main`] and [`runtime_main`]. The
//! crate `boathook` uses the public modules to inspect and change running containers.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

pub mod apply;
pub mod attachment;
mod authorization;
pub mod cgroup;
pub mod container;
pub mod exit;
pub mod installation;
mod loader;
pub mod log;
pub mod mount;
mod mountinfo;
pub mod oci;
pub mod planner;
pub mod process;
pub mod start;
#[allow(unsafe_code, reason = "system calls that nix does not have")]
pub mod sys;
pub mod trust;
pub mod wrapper;

pub use start::main as hook_main;
pub use sys::memory::SingleThreadMemory;
pub use wrapper::main as runtime_main;

/// Functions of private modules that the fuzz targets in `tests/fuzz` call.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use crate::cgroup::device_program;
    pub use crate::mountinfo::fuzzing::mountinfo;
    pub use crate::trust::{checkpoint, forged_annotations};
}

//! Makes system calls for which neither the standard library nor `nix` has functions.
//!
//! All `unsafe` code of the crate is in this module. Its functions take and return borrowed or
//! owned descriptors, and return the error number of the kernel. They make no decisions.

pub(crate) mod bpf;
pub mod deadline;
pub(crate) mod group;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod netlink;
pub mod process;
pub mod statmount;
pub mod uevent;
#[cfg(all(target_env = "musl", panic = "abort"))]
mod unwinding;

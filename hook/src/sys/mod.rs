//! System calls that neither the standard library nor `nix` offers.
//!
//! All `unsafe` code of the crate is in this module. Each function takes and returns borrowed
//! or owned descriptors, and reports the error number of the kernel. The functions decide
//! nothing.

pub(crate) mod bpf;
pub(crate) mod deadline;
pub(crate) mod group;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod statmount;
pub(crate) mod uevent;
#[cfg(all(target_env = "musl", panic = "abort"))]
mod unwinding;

//! System calls that neither the standard library nor `nix` offers.
//!
//! All of the crate's `unsafe` code is in here. A function takes and gives
//! borrowed or owned descriptors, reports the kernel's error number and does
//! nothing else.

pub(crate) mod bpf;
pub(crate) mod deadline;
pub(crate) mod group;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod statmount;
pub(crate) mod uevent;
#[cfg(all(target_env = "musl", panic = "abort"))]
mod unwinding;

//! Install the hook on a host, report its state, and remove it.
//!
//! [`install::plan`] and [`uninstall::plan`] read the host and return a list of
//! [steps](step::Step), each of which is done or not done; [`step::run`]
//! carries them out. A run that is killed after any step leaves the host in its
//! old or its new state, and the next run continues from there.
#![forbid(unsafe_code)]

mod claims;
pub mod cli;
pub mod configuration;
pub mod elf;
pub mod in_use;
pub mod install;
pub mod layout;
pub mod lock;
pub mod manifest;
pub mod payload;
mod specifications;
pub mod status;
pub mod step;
mod step_json;
mod tree;
pub mod uninstall;

//! Installs the hook on a host, reports on it and removes it.
//!
//! [`install::plan`] and [`uninstall::plan`] look at the host and give a list
//! of [steps](step::Step), each of which is done or not done; [`step::run`]
//! does them. A run that is killed after any step leaves the host with what it
//! had, or with what it shall have, and the next run goes on from there.

pub mod elf;
mod error;
pub mod in_use;
pub mod install;
pub mod layout;
pub mod lock;
pub mod manifest;
pub mod payload;
pub mod status;
pub mod step;
mod tree;
pub mod uninstall;

pub use error::Error;

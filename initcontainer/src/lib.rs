//! Install the hook on a host, report its state, and remove it.
//!
//! [`install::plan`] and [`uninstall::plan`] read the host and return a list of
//! [steps](step::Step). [`step::run`] carries the steps out, each completely or not at all. If a
//! run is killed, the host has its old or its new state, and the next run continues from there.
#![forbid(unsafe_code)]

mod claims;
pub mod cli;
pub mod compatibility;
pub mod configuration;
pub mod elf;
pub mod in_use;
pub mod install;
pub mod layout;
pub mod lock;
pub mod manifest;
pub mod payload;
pub mod recorded_options;
pub mod service;
pub mod services;
mod specifications;
pub mod status;
pub mod step;
mod step_json;
mod tree;
pub mod uninstall;

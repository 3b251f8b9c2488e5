//! Installs the hook on a host, configures the container engines to call the hook, reports the
//! state, and removes the installation. `boathook-init` calls this crate: from an administrator's
//! shell, from a package, or in the init container of the DaemonSet. The crate changes only files
//! that its plan names and its manifest records, restarts no engine without `--restart`, and never
//! enters a container.
//!
//! [`install::plan`] and [`uninstall::plan`] read the host and return a list of
//! [steps](step::Step). [`step::execute_steps`] executes the steps, each completely or not at all.
//! If a run is killed, the host is in its old or its new state, and the next run continues from
//! there.
#![forbid(unsafe_code)]

mod claims;
pub mod class_index;
pub mod cli;
pub mod compatibility;
pub mod configuration;
pub mod directories;
pub mod elf;
pub mod fact_programs;
pub mod host;
pub mod in_use;
pub mod install;
pub mod layout;
pub mod lock;
pub mod manifest;
pub mod payload;
pub mod plugin_argument;
pub mod recorded_options;
pub mod service;
pub mod services;
mod specifications;
pub mod status;
pub mod step;
mod step_json;
mod tree;
pub mod uninstall;
mod waiting;

//! Installing, upgrading and uninstalling on hosts that are trees in a
//! temporary directory, by the library and by the program.

// clippy.toml allows these methods in `#[test]` functions, but not in their helper functions.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod bad_input;
mod choice;
mod compatibility;
mod damaged;
mod default_runtime;
mod directories;
mod docker;
mod json;
mod killed;
mod links;
mod mounts;
mod odd_hosts;
mod packages;
mod payload;
mod planted;
mod program;
mod restarts;
mod round_trip;
mod selinux;
mod services;
mod site;
mod taken_back;
mod upgrade;
mod watchers;

#[path = "../../../runtime-config/tests/engines/tree.rs"]
mod tree;

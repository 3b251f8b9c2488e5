//! The programs that run once per cluster, not on each node. `boathook-scheduler` is a scheduler
//! extender that prefers nodes whose devices are partly used. `boathook-webhook` is a mutating
//! webhook that lets pods request FPGAs by friendly names. The hook and the plugin do not need
//! these programs.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

pub mod json;
pub mod pages;
mod process;
pub mod quantity;
pub mod scheduler;
pub mod watch;
pub mod webhook;

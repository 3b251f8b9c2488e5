//! The programs that run beside the nodes, once per cluster. `boathook-scheduler` is a scheduler
//! extender that prefers nodes whose devices are partly used. `boathook-webhook` is a mutating
//! webhook by which pods request FPGAs under names that people can remember. The hook and the
//! plugin work without either.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

pub mod json;
pub mod pages;
pub mod process;
pub mod quantity;
pub mod scheduler;
pub mod watch;
pub mod webhook;

//! The programs that run once per cluster: a scheduler extender that fills devices up
//! (`boathook-scheduler`), and a mutating webhook with names for FPGAs
//! (`boathook-webhook`). The hook and the plugin work without either.

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

//! The programs that run once per cluster: a scheduler extender that fills devices up
//! (`boathook-scheduler`), and a mutating webhook with names for FPGAs
//! (`boathook-webhook`). The hook and the plugin work without either.

pub mod json;
pub mod pages;
pub mod process;
pub mod quantity;
pub mod scheduler;
pub mod watch;
pub mod webhook;

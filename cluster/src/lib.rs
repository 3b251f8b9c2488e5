//! The programs that run once per cluster: a scheduler extender that fills devices up
//! (`boathook-scheduler`), and a mutating webhook with names for FPGAs
//! (`boathook-webhook`). The hook and the plugin work without either.

pub mod json;
mod open_files;
pub mod pages;
pub mod quantity;
pub mod retry;
pub mod scheduler;
pub mod shutdown;
pub mod webhook;

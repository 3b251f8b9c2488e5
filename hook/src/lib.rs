//! Placeholder.

pub mod container;
pub mod loader;
pub mod mount;
#[allow(unsafe_code)]
mod sys;

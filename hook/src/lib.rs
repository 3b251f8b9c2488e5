//! Placeholder.

pub mod loader;

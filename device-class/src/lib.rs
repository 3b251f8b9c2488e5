//! Placeholder.

pub mod ld_cache;

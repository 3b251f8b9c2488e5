//! The mutating webhook: pods request FPGAs by the names of objects, and get the
//! device plugin's resources.

pub mod admission;
pub mod api;
pub mod feed;
pub mod mappings;
pub mod metrics;
pub mod mutate;
pub mod names;
pub mod pod;
pub mod program;
pub mod review;

mod container;

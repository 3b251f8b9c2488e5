//! Implements the mutating webhook. Pods request FPGAs by friendly names, which are defined by
//! AcceleratorFunction and FpgaRegion objects. The webhook replaces these names by the names of the
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

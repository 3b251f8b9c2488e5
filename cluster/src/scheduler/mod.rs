//! Implements the scheduler extender. It prefers nodes on which a pod would use the remaining units
//! of partly used devices, and refuses nodes whose devices have no room for a pod.

pub mod bin_packing;
pub mod config;
pub mod demand;
pub mod extender;
pub mod extender_api;
pub mod feed;
pub mod metrics;
pub mod objects;
pub mod program;
pub mod score;
pub mod view;

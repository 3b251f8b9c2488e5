//! Implements the scheduler extender. It gives higher scores to nodes whose devices a pod would
//! fill up, and refuses nodes on which no device has room for a pod.

pub mod bin_packing;
pub mod config;
pub mod demand;
pub mod extender;
pub mod feed;
pub mod metrics;
pub mod objects;
pub mod program;
pub mod score;
pub mod view;
pub mod wire;

//! The scheduler extender: scores nodes by how full they would be, and keeps pods
//! off nodes on which no device has room.

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

//! The built `boathook-plugin` against a fake kubelet, seen from outside.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod allocation;
mod bad_input;
mod client;
mod descriptors;
mod devices;
mod node;
mod operation;
mod pre_start;
mod registration;
mod shutdown;

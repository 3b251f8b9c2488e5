//! The programs of this crate against a fake API server, and their manifests.

// Helper functions of tests are no `#[test]`s, so clippy.toml's leave for
// tests does not reach them.
#![allow(clippy::unwrap_used)]

mod api_server;
mod client;
mod extender;
mod feed;
mod figures;
mod hostile_clients;
mod manifests;
mod simulation;
mod webhook;

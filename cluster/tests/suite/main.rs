//! Tests of the programs of this crate with a fake API server, and of their manifests.

// Helper functions of tests are not `#[test]`s, so clippy.toml's exception for
// tests does not apply to them.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod api_server;
mod client;
mod extender;
mod feed;
mod figures;
mod hostile_clients;
mod manifests;
mod program;
mod siege;
mod tls;
mod webhook;

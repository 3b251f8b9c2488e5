//! Tests of the programs of this crate with a fake API server, and of their manifests.

// clippy.toml permits `unwrap` in tests only. It does not count the functions that several tests
// share as tests, although this crate has nothing else.
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

//! The manifests in `deploy`: read into Kubernetes' own types, what refers to
//! what, and rendered by `kubectl kustomize`.

// clippy.toml allows these methods in `#[test]` functions, but not in their helper functions.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod chart;
mod manifest;
mod references;
mod rendered;
mod sources;
mod workflows;

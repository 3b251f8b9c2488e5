//! The manifests in `deploy`: read into Kubernetes' own types, what refers to
//! what, and rendered by `kubectl kustomize`.

// Helper functions of tests are no `#[test]`s, so clippy.toml's leave for
// tests does not reach them.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod chart;
mod manifest;
mod references;
mod rendered;
mod sources;
mod workflows;

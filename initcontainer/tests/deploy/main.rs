//! Tests of the manifests in `deploy`: they parse as Kubernetes' own types, their references
//! between each other are correct, and `kubectl kustomize` renders them.

// clippy.toml allows these methods in `#[test]` functions, but not in their helper functions.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod alerts;
mod chart;
mod classes;
mod manifest;
mod notes;
mod openshift;
mod places;
mod pods;
mod references;
mod refused;
mod releases;
mod rendered;
mod runtime_classes;
mod schemas;
mod sources;
mod tolerations;
mod toml;
mod validator;
mod versions;
mod workflows;

//! Every engine, with the same list of cases on each.
//!
//! An engine is installed as an operator would have it (by `runtime-config`),
//! started in namespaces of its own, and stopped again. The last engine to be
//! done prints the table of all.

pub(crate) mod bundles;
pub(crate) mod case;
mod check;
pub(crate) mod cri;
pub(crate) mod ctr;
mod docker;
pub(crate) mod engine;
pub(crate) mod machine;
mod matrix;
pub(crate) mod podman;

use anyhow::Result;
use engine::Engine;

#[test]
fn docker() {
    try_every_case("docker", docker::missing, docker::engine);
}

#[test]
fn docker_with_userns_remap() {
    try_every_case("docker, userns-remap", docker::missing, docker::remapped);
}

#[test]
fn podman_by_hooks_d() {
    try_every_case("podman, hooks.d", podman::missing, podman::by_hooks_d);
}

#[test]
fn podman_by_runtime() {
    try_every_case("podman, runtime", podman::missing, podman::by_runtime);
}

#[test]
fn containerd_by_ctr() {
    try_every_case("containerd, ctr", ctr::missing, ctr::Ctr::new);
}

#[test]
fn containerd_by_cri_and_runtime() {
    let engine = || cri::Cri::new(cri::How::BinaryName);
    try_every_case("containerd, CRI, BinaryName", ctr::missing, engine);
}

#[test]
fn containerd_by_cri_and_base_spec() {
    let engine = || cri::Cri::new(cri::How::BaseRuntimeSpec);
    try_every_case("containerd, CRI, base_runtime_spec", ctr::missing, engine);
}

#[test]
fn runc() {
    try_every_case(
        "runc",
        || bundles::missing("runc"),
        || bundles::Bundles::new("runc"),
    );
}

#[test]
fn crun() {
    try_every_case(
        "crun",
        || bundles::missing("crun"),
        || bundles::Bundles::new("crun"),
    );
}

#[test]
fn youki() {
    try_every_case(
        "youki",
        || bundles::missing("youki"),
        || bundles::Bundles::new("youki"),
    );
}

/// How many engines are tried above.
const ENGINES: usize = 10;

fn try_every_case<E: Engine>(
    name: &'static str,
    missing: impl Fn() -> Option<String>,
    start: impl Fn() -> Result<E>,
) {
    let column = match missing() {
        Some(reason) => {
            skip::report(name, &reason);
            matrix::Column::missing(name, &reason)
        }
        None => matrix::Column::of(name, &start().unwrap()),
    };
    let failures = column.failures();
    matrix::add(column, ENGINES);
    assert!(failures.is_empty(), "{name}:\n{failures}");
}

//! Every engine, with the same list of cases on each.
//!
//! An engine is configured as `boathook-init` does it (by `runtime-config`),
//! started in namespaces of its own, and stopped again: those that this machine has,
//! and those of later generations. The last engine of a generation to be done prints
//! the table of all.

pub(crate) mod bundles;
pub(crate) mod case;
pub(crate) mod cdi;
mod check;
mod check_engine;
mod compose;
pub(crate) mod cri;
mod cri_cdi;
mod cri_plugin;
pub(crate) mod ctr;
mod default_runtime;
mod docker;
pub(crate) mod engine;
mod everyday;
mod followed;
mod image;
mod late;
mod listed_path;
pub(crate) mod machine;
mod matrix;
mod offered;
mod platforms;
pub(crate) mod podman;
mod recipes;
mod recordings;
mod replugged;
mod rootless;
mod updated;

use anyhow::Result;
use engine::Engine;
use harness::engine_root::Generation;

/// Makes a test of each engine, in a module for the generation.
macro_rules! engines_of {
    ($generation:ident: $($test:ident, $name:literal, $missing:expr, $engine:expr;)+) => {
        use harness::engine_root::Generation;

        use super::*;

        const COLUMNS: usize = [$($name),+].len();

        $(
            #[test]
            fn $test() {
                try_every_case(Generation::$generation, COLUMNS, $name, $missing, $engine);
            }
        )+
    };
}

mod of_this_machine {
    engines_of! { OfThisMachine:
        docker, "docker", docker::missing, docker::engine;
        docker_with_userns_remap, "docker, userns-remap", docker::missing, docker::remapped;
        podman_by_hooks_d, "podman, hooks.d", podman::missing, podman::by_hooks_d;
        podman_by_runtime, "podman, runtime", podman::missing, podman::by_runtime;
        podman_by_cdi, "podman, CDI", podman::missing, podman::by_cdi;
        containerd_by_ctr, "containerd, ctr", ctr::missing, ctr::Ctr::new;
        containerd_by_cri_and_runtime, "containerd, CRI, BinaryName", ctr::missing,
            |generation| cri::Cri::new(generation, cri::How::BinaryName);
        containerd_by_cri_and_base_spec, "containerd, CRI, base_runtime_spec", ctr::missing,
            |generation| cri::Cri::new(generation, cri::How::BaseRuntimeSpec);
        runc, "runc", |generation| bundles::missing(generation, "runc"),
            |generation| bundles::Bundles::new(generation, "runc");
        crun, "crun", |generation| bundles::missing(generation, "crun"),
            |generation| bundles::Bundles::new(generation, "crun");
        youki, "youki", |generation| bundles::missing(generation, "youki"),
            |generation| bundles::Bundles::new(generation, "youki");
    }
}

mod forky {
    engines_of! { Forky:
        docker, "docker", docker::missing, docker::engine;
        docker_with_containerd_store, "docker, containerd store", docker::missing,
            docker::with_containerd_store;
        docker_by_cdi, "docker, CDI", docker::missing, docker::by_cdi;
        podman_by_hooks_d, "podman, hooks.d", podman::missing, podman::by_hooks_d;
        containerd_by_cri_and_runtime, "containerd, CRI, BinaryName", ctr::missing,
            |generation| cri::Cri::new(generation, cri::How::BinaryName);
        containerd_by_cri_and_cdi, "containerd, CRI, CDI", ctr::missing,
            |generation| cri::Cri::new(generation, cri::How::Cdi);
        runc, "runc", |generation| bundles::missing(generation, "runc"),
            |generation| bundles::Bundles::new(generation, "runc");
        crun, "crun", |generation| bundles::missing(generation, "crun"),
            |generation| bundles::Bundles::new(generation, "crun");
    }
}

mod resolute {
    engines_of! { Resolute:
        docker, "docker", docker::missing, docker::engine;
        containerd_by_cri_and_cdi, "containerd, CRI, CDI", ctr::missing,
            |generation| cri::Cri::new(generation, cri::How::Cdi);
        runc, "runc", |generation| bundles::missing(generation, "runc"),
            |generation| bundles::Bundles::new(generation, "runc");
    }
}

fn try_every_case<E: Engine>(
    generation: Generation,
    columns: usize,
    name: &'static str,
    missing: impl Fn(Generation) -> Option<String>,
    start: impl Fn(Generation) -> Result<E>,
) {
    let column = match missing(generation) {
        Some(reason) => {
            let test = match generation {
                Generation::OfThisMachine => name.to_string(),
                Generation::Forky => format!("{name} of forky"),
                Generation::Resolute => format!("{name} of resolute"),
            };
            skip::report(&test, &reason);
            matrix::Column::missing(name, &reason)
        }
        None => matrix::Column::try_cases(name, &start(generation).unwrap()),
    };
    let failures = column.failures();
    matrix::add(generation, column, columns);
    assert!(failures.is_empty(), "{name}:\n{failures}");
}

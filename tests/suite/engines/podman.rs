//! podman, by hooks.d and by the wrapper.

use std::process::Command;

use anyhow::Result;
use harness::binaries;
use harness::engine_root::Generation;

use super::cdi;
use super::docker::{DockerLike, Requests, UserNamespaces};
use super::machine::{self, Machine};

pub(crate) fn missing(generation: Generation) -> Option<String> {
    machine::missing(generation, &["podman", "conmon", "runc"])
}

/// Every container has the hook, by the file in hooks.d.
pub(super) fn by_hooks_d(generation: Generation) -> Result<DockerLike> {
    engine(machine(generation)?, plain, Requests::Variable)
}

/// The wrapper is named on the command line. The hook is in hooks.d as well,
/// and must not be called twice.
pub(super) fn by_runtime(generation: Generation) -> Result<DockerLike> {
    let client = |machine: &Machine| with_runtime(machine, "boathook");
    engine(machine(generation)?, client, Requests::Variable)
}

/// The wrapper is named on the command line, and the hook is not in hooks.d.
pub(super) fn by_runtime_alone(generation: Generation) -> Result<DockerLike> {
    let client = |machine: &Machine| {
        let program = binaries::program("boathook-runtime").unwrap();
        with_runtime(machine, program.to_str().unwrap())
    };
    engine(unconfigured(generation)?, client, Requests::Variable)
}

/// Without Boathook's configuration: containers name devices of CDI specifications.
pub(super) fn by_cdi(generation: Generation) -> Result<DockerLike> {
    let (machine, parent) = unconfigured(generation)?;
    cdi::generate(&machine, &[])?;
    engine((machine, parent), plain, Requests::Cdi)
}

/// With crun, and the hook in hooks.d.
pub(super) fn by_crun(generation: Generation) -> Result<DockerLike> {
    let (machine, parent) = machine(generation)?;
    super::bundles::leave_hybrid(&machine)?;
    let client = |machine: &Machine| with_runtime(machine, "crun");
    engine((machine, parent), client, Requests::Variable)
}

fn engine(
    (machine, parent): (Machine, String),
    client: fn(&Machine) -> Command,
    requests: Requests,
) -> Result<DockerLike> {
    let user_namespaces = UserNamespaces::ByOption;
    DockerLike::new(machine, client, requests, &[&parent], user_namespaces)
}

/// A machine for podman, and the option that names its containers' cgroup.
pub(crate) fn machine(generation: Generation) -> Result<(Machine, String)> {
    let (machine, parent) = unconfigured(generation)?;
    machine.install(runtime_config::Engine::Podman, None)?;
    Ok((machine, parent))
}

/// The same, without the hook in hooks.d.
pub(super) fn unconfigured(generation: Generation) -> Result<(Machine, String)> {
    let machine = Machine::new(generation, "runc")?;
    let storage = format!(
        "[storage]\ndriver = \"overlay\"\ngraphroot = {:?}\nrunroot = \"/run/containers/storage\"\n",
        machine.path("storage")
    );
    machine.write("/etc/containers/storage.conf", &storage)?;
    machine.write("/etc/containers/containers.conf", CONTAINERS_CONF)?;
    let parent = format!("--cgroup-parent={}", machine.parent.path().display());
    Ok((machine, parent))
}

/// Without limits: raising them takes CAP_SYS_RESOURCE, which a test machine
/// may lack.
pub(super) const CONTAINERS_CONF: &str = r#"
[containers]
default_ulimits = []
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"#;

pub(super) fn plain(machine: &Machine) -> Command {
    machine.private.command("podman")
}

fn with_runtime(machine: &Machine, runtime: &str) -> Command {
    let mut command = plain(machine);
    command.args(["--runtime", runtime]);
    command
}

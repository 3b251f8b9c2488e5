//! docker compose, podman-compose, `docker run --gpus`, podman's pods with an infra
//! container, and quadlet, on engines of today.

use std::fs;

use anyhow::Result;
use harness::engine_root::Generation;
use harness::probe;
use harness::rootfs::Rootfs;
use serde_json::{Value, json};

use super::docker::{self, DockerLike, name_of};
use super::engine::printed;
use super::{cdi, machine, podman};

/// A service that waits. podman-compose ignores `pull_policy`.
fn service(name: &str, more: (&str, Value)) -> Value {
    let mut service = json!({
        "image": name_of(Rootfs::Busybox),
        "pull_policy": "never",
        "container_name": name,
        "network_mode": "none",
        "command": [probe::PATH, probe::PAUSE],
        "stop_grace_period": "0s",
    });
    service[more.0] = more.1;
    service
}

fn remove(engine: &DockerLike, name: &str) {
    printed(engine.command("rm").args(["--force", name])).unwrap();
}

/// Starts services with devices, by the variable and by CDI, from a file that `write`
/// writes.
fn starts_services(
    engine: &DockerLike,
    runtime: Option<&str>,
    write: impl Fn(&str),
    compose: impl Fn(&[&str]) -> Result<String>,
) {
    cdi::generate(&engine.machine, &[]).unwrap();
    let variable = json!({"DUMMY_VISIBLE_DEVICES": "npu-3"});
    let mut by_variable = service("by-variable", ("environment", variable));
    if let Some(runtime) = runtime {
        by_variable["runtime"] = json!(runtime);
    }
    let by_cdi = service("by-cdi", ("devices", json!(["dummy.com/npu=npu-5"])));
    // YAML has JSON in it.
    let file = json!({"services": {"by-variable": by_variable, "by-cdi": by_cdi}}).to_string();
    write(&file);
    compose(&["up", "--detach"]).unwrap();
    assert_eq!(engine.devices("by-variable"), [3]);
    assert_eq!(engine.devices("by-cdi"), [5]);
    compose(&["restart"]).unwrap();
    assert_eq!(engine.devices("by-variable"), [3]);
    compose(&["down"]).unwrap();

    write(&file.replace("npu-3", "npu-64"));
    // podman-compose prints podman's message, and passes its status on.
    let refused = compose(&["up", "--detach", "by-variable"]);
    let message = format!("{:#}", refused.unwrap_err());
    assert!(
        message.contains("boathook: ") && message.contains("npu-64"),
        "{message}"
    );
    compose(&["down"]).unwrap();
}

#[test]
fn compose_starts_services_with_devices() {
    if let Some(reason) = docker::missing(Generation::Forky) {
        return skip::report("docker compose", &reason);
    }
    let engine = docker::engine(Generation::Forky).unwrap();
    let path = engine.machine.path("compose.yaml");
    let write = |text: &str| fs::write(&path, text).unwrap();
    starts_services(&engine, Some("boathook"), write, |arguments| {
        let mut command = engine.command("compose");
        command
            .args(["--project-name", "test", "--file"])
            .arg(&path);
        printed(command.args(arguments))
    });
}

/// Its containers are in a pod without an infra container, unless configured otherwise.
#[test]
fn podman_compose_starts_services_with_devices() {
    if let Some(reason) = machine::missing(Generation::Forky, &["podman-compose", "podman"]) {
        return skip::report("podman-compose", &reason);
    }
    let engine = podman::by_hooks_d(Generation::Forky).unwrap();
    let parent = format!("--cgroup-parent={}", engine.machine.parent.path().display());
    let write = |text: &str| engine.machine.write("/compose.yaml", text).unwrap();
    starts_services(&engine, None, write, |arguments| {
        let mut command = engine.machine.private.command("podman-compose");
        command
            .args(["--project-name=test", "--file=/compose.yaml"])
            .arg(format!("--pod-args=--infra=false --share= {parent}"))
            .arg(format!("--podman-run-args={parent}"));
        printed(command.args(arguments))
    });
}

/// docker itself refuses `--gpus` without the program of NVIDIA's toolkit; with it, the
/// option is a variable.
#[test]
fn gpus_of_docker_are_a_variable_for_the_runtime() {
    if let Some(reason) = docker::missing(Generation::Forky) {
        return skip::report("docker run --gpus", &reason);
    }
    let engine = docker::with_gpus(Generation::Forky).unwrap();
    for (gpus, wanted) in [
        ("2", &[0, 1][..]),
        ("\"device=0,3\"", &[0, 3]),
        ("all", &[0, 1, 2, 3, 4, 5, 6, 7]),
    ] {
        let options = ["--network=none", "--runtime=boathook", "--gpus", gpus];
        engine.run_waiting("gpus", &options);
        assert_eq!(engine.devices("gpus"), wanted, "{gpus}");
        remove(&engine, "gpus");
    }
}

#[test]
fn pods_of_podman_with_an_infra_container_have_devices() {
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("podman's pods with an infra container", &reason);
    }
    let engine = podman::by_hooks_d(Generation::Forky).unwrap();
    let image = name_of(Rootfs::Busybox);
    let mut pod = engine.command("pod");
    let parent = engine.machine.parent.path();
    pod.args(["create", "--name=p", "--network=none"])
        .arg(format!("--infra-image={image}"))
        .arg(format!("--infra-command={} {}", probe::PATH, probe::PAUSE))
        .arg(format!("--cgroup-parent={}", parent.display()));
    printed(&mut pod).unwrap();
    let options = ["--pod=p", "--env=DUMMY_VISIBLE_DEVICES=npu-3"];
    engine.run_waiting("npu-user", &options);
    assert_eq!(engine.devices("npu-user"), [3]);
    printed(engine.command("pod").args(["restart", "p"])).unwrap();
    assert_eq!(engine.devices("npu-user"), [3]);
    let mut remove = engine.command("pod");
    printed(remove.args(["rm", "--force", "--time=0", "p"])).unwrap();
}

/// The command of the unit that podman's generator makes for systemd, which is not here.
#[test]
fn a_container_of_quadlet_has_devices() {
    const QUADLET: &str = "/usr/libexec/podman/quadlet";
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("quadlet", &reason);
    }
    let engine = podman::by_hooks_d(Generation::Forky).unwrap();
    cdi::generate(&engine.machine, &[]).unwrap();
    let parent = engine.machine.parent.path().display().to_string();
    for (line, wanted) in [
        ("Environment=DUMMY_VISIBLE_DEVICES=npu-3", 3),
        ("AddDevice=dummy.com/npu=npu-5", 5),
    ] {
        let text = format!(
            "[Container]\nImage={}\nContainerName=npu-user\nNetwork=none\n{line}\n\
             PodmanArgs=--cgroup-parent={parent}\nExec={} {}\n",
            name_of(Rootfs::Busybox),
            probe::PATH,
            probe::PAUSE
        );
        engine
            .machine
            .write("/etc/containers/systemd/npu.container", &text)
            .unwrap();
        let unit = printed(engine.machine.private.command(QUADLET).arg("-dryrun")).unwrap();
        let start = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        // These need systemd.
        let of_systemd = ["--sdnotify", "--cgroups=", "--cidfile="];
        let words = start.unwrap().split(' ');
        let words: Vec<&str> = words
            .filter(|word| !of_systemd.iter().any(|begin| word.starts_with(begin)))
            .collect();
        let mut command = engine.machine.private.command(words[0]);
        printed(command.args(&words[1..])).unwrap();
        assert_eq!(engine.devices("npu-user"), [wanted], "{unit}");
        remove(&engine, "npu-user");
    }
}

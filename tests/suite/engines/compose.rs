//! docker compose, podman-compose, `docker run --gpus`, podman's pods with an infra
//! container, and quadlet, on engines of today.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use harness::binaries;
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::probe;
use harness::rootfs::Rootfs;
use serde_json::{Value, json};

use super::cri::Cri;
use super::docker::{self, DockerLike, name_of};
use super::engine::{ContainerSettings, Engine, printed};
use super::{cdi, ctr, machine, podman};

/// A service that waits. podman-compose ignores `pull_policy`.
pub(super) fn service(name: &str, more: (&str, Value)) -> Value {
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

pub(super) fn remove(engine: &DockerLike, name: &str) {
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

/// docker looks for a program of NVIDIA's toolkit, and calls it as a hook for `--gpus` and for
/// what compose reserves. The image has a variable of its own, as those of CUDA have.
fn gives_gpus(generation: Generation) {
    if let Some(reason) = docker::missing(generation) {
        return skip::report(&format!("docker run --gpus of {generation:?}"), &reason);
    }
    let engine = docker::with_gpus(generation).unwrap();
    let all: Vec<usize> = (0..8).collect();
    for (gpus, wanted) in [
        (&["--gpus=2"][..], &[0, 1][..]),
        (&["--gpus=\"device=0,3\""], &[0, 3]),
        (&["--gpus=all"], &all),
        (&["--gpus=all", "--runtime=nvidia"], &all),
        (&["--gpus=1", "--env=NVIDIA_VISIBLE_DEVICES=all"], &[0]),
        (
            &["--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=5"],
            &[5],
        ),
        (&["--env=NVIDIA_VISIBLE_DEVICES=all"], &[]),
    ] {
        engine.run_waiting("gpus", &[gpus, &["--network=none"]].concat());
        assert_eq!(engine.devices("gpus"), wanted, "{gpus:?}");
        if !wanted.is_empty() {
            let id = printed(engine.command("inspect").args(["--format={{.Id}}", "gpus"]));
            has_one_hook(&engine, id.unwrap().trim(), gpus);
        }
        remove(&engine, "gpus");
    }
    let mut run = engine.command("run");
    run.args(["--gpus=device=9", "--network=none"]);
    run.args([&name_of(Rootfs::Busybox), probe::PATH, probe::PAUSE]);
    let refused = format!("{:#}", printed(&mut run).unwrap_err());
    assert!(refused.contains("has no device `9`"), "{refused}");
}

/// The runtime adds no hook beside docker's, and `doctor` knows docker's.
fn has_one_hook(engine: &DockerLike, id: &str, gpus: &[&str]) {
    let bundles = engine.machine.path("exec").join("containerd/daemon");
    let bundle = bundles.join(format!("io.containerd.runtime.v2.task/moby/{id}"));
    let text = fs::read_to_string(bundle.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let hooks = config["hooks"]["prestart"].as_array().unwrap();
    let args = hooks.iter().map(|hook| hook["args"].to_string());
    let ours = args.filter(|args| args.contains("prestart"));
    assert_eq!(ours.count(), 1, "{gpus:?}: {hooks:?}");
    let program = binaries::program("boathook").unwrap();
    let mut doctor = engine.machine.private.command(program.to_str().unwrap());
    let found = printed(doctor.args(["doctor", "--container", id])).unwrap();
    assert!(found.contains("is called at prestart"), "{found}");
}

#[test]
fn gpus_of_docker_20_reach_the_hook() {
    gives_gpus(Generation::OfThisMachine);
}

#[test]
fn gpus_of_docker_28_reach_the_hook() {
    gives_gpus(Generation::Forky);
}

#[test]
fn gpus_of_docker_29_reach_the_hook() {
    gives_gpus(Generation::Resolute);
}

/// A newer Docker that finds `nvidia-cdi-hook`, and no other hook, takes `--gpus 2` for the CDI devices
/// nvidia.com/gpu=0 and 1 (moby, daemon/devices_nvidia_linux.go). Docker 29.1 does not look for this
/// program, and gives these devices if they are requested by their names.
#[test]
fn gpus_of_docker_29_are_given_as_cdi_devices() {
    let generation = Generation::Resolute;
    if let Some(reason) = docker::missing(generation) {
        return skip::report("docker run --gpus by CDI", &reason);
    }
    let engine = docker::with_gpus_by_cdi(generation).unwrap();
    let all: Vec<usize> = (0..8).collect();
    let name = |device: &str| format!("--device=nvidia.com/gpu={device}");
    for (gpus, names, wanted) in [
        ("--gpus=2", &["0", "1"][..], &[0, 1][..]),
        ("--gpus=\"device=0,3\"", &["0", "3"], &[0, 3]),
        ("--gpus=\"device=gpu-5\"", &["gpu-5"], &[5]),
        ("--gpus=all", &["all"], &all),
    ] {
        let names: Vec<String> = names.iter().map(|device| name(device)).collect();
        let names = names.iter().map(String::as_str).collect::<Vec<_>>();
        for options in [&[gpus][..], &names] {
            let mut run = engine.command("run");
            run.args(["--detach", "--name=gpus", "--network=none"]);
            run.args(options);
            run.args([&name_of(Rootfs::Busybox), probe::PATH, probe::PAUSE]);
            match printed(&mut run) {
                Ok(_) => assert_eq!(engine.devices("gpus"), wanted, "{options:?}"),
                Err(error) => {
                    let text = format!("{error:#}");
                    let is_unknown = text.contains("could not select device driver");
                    assert!(options == [gpus] && is_unknown, "{options:?}: {text}");
                }
            }
            remove(&engine, "gpus");
        }
    }
}

/// Starts services that reserve GPUs. `compose` is the command of the client for a file, without a
/// subcommand.
fn gives_reserved_gpus(engine: &DockerLike, compose: impl Fn(&Path) -> Command) {
    let reserve = |device: Value| {
        let devices = json!([device]);
        json!({"resources": {"reservations": {"devices": devices}}})
    };
    let two = json!({"driver": "nvidia", "count": 2, "capabilities": ["gpu"]});
    let named = json!({"driver": "nvidia", "device_ids": ["3"], "capabilities": ["gpu"]});
    let mut by_runtime = service("by-runtime", ("runtime", json!("nvidia")));
    by_runtime["environment"] = json!({"NVIDIA_VISIBLE_DEVICES": "5"});
    let file = json!({"services": {
        "two": service("two", ("deploy", reserve(two))),
        "named": service("named", ("deploy", reserve(named))),
        "by-runtime": by_runtime,
    }});
    let path = engine.machine.path("compose.yaml");
    fs::write(&path, file.to_string()).unwrap();
    let run = |arguments: &[&str]| printed(compose(&path).args(arguments)).unwrap();
    run(&["up", "--detach"]);
    assert_eq!(engine.devices("two"), [0, 1]);
    assert_eq!(engine.devices("named"), [3]);
    assert_eq!(engine.devices("by-runtime"), [5]);
    run(&["restart"]);
    assert_eq!(engine.devices("two"), [0, 1]);
    run(&["down"]);
}

#[test]
fn compose_starts_services_that_reserve_gpus() {
    if let Some(reason) = docker::missing(Generation::Forky) {
        return skip::report("docker compose with reserved GPUs", &reason);
    }
    let engine = docker::with_gpus(Generation::Forky).unwrap();
    gives_reserved_gpus(&engine, |file| {
        let mut command = engine.command("compose");
        command.args(["--project-name", "test", "--file"]).arg(file);
        command
    });
}

/// Python's compose, which Debian 12 has as docker-compose.
#[test]
fn compose_1_starts_services_that_reserve_gpus() {
    const TEST: &str = "docker-compose 1 with reserved GPUs";
    let generation = Generation::OfThisMachine;
    if let Some(reason) = docker::missing(generation) {
        return skip::report(TEST, &reason);
    }
    let mut version = Command::new("docker-compose");
    let version = printed(version.args(["version", "--short"])).unwrap_or_default();
    if !version.starts_with("1.") {
        return skip::report(TEST, "needs docker-compose 1, as in Debian 12");
    }
    let engine = docker::with_gpus(generation).unwrap();
    gives_reserved_gpus(&engine, |file| {
        let mut command = engine.machine.private.command("docker-compose");
        command.args(["--host", &docker::socket(&engine.machine)]);
        command.args(["--project-name", "test", "--file"]).arg(file);
        command
    });
}

#[test]
fn pods_of_the_vendors_runtime_class_have_devices() {
    for generation in [Generation::OfThisMachine, Generation::Forky] {
        if let Some(reason) = ctr::missing(generation) {
            skip::report(&format!("the handler nvidia of {generation:?}"), &reason);
            continue;
        }
        let engine = Cri::with_vendor_handler(generation).unwrap();
        let wanted = ContainerSettings::new(Rootfs::Busybox, Some("npu-3"));
        let running = engine.start(&wanted).unwrap();
        let seen = in_container::devices_by(|asked| running.exec(asked)).unwrap();
        assert_eq!(seen, [3], "{generation:?}");
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

/// The command of the unit that podman's generator makes for systemd, which is not here. The file
/// of the container `npu-user` has these lines.
pub(super) fn quadlet_command(engine: &DockerLike, lines: &str) -> Command {
    const QUADLET: &str = "/usr/libexec/podman/quadlet";
    let parent = engine.machine.parent.path().display().to_string();
    let text = format!(
        "[Container]\nImage={}\nContainerName=npu-user\nNetwork=none\n{lines}\n\
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
    command.args(&words[1..]);
    command
}

#[test]
fn a_container_of_quadlet_has_devices() {
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("quadlet", &reason);
    }
    let engine = podman::by_hooks_d(Generation::Forky).unwrap();
    cdi::generate(&engine.machine, &[]).unwrap();
    for (line, wanted) in [
        ("Environment=DUMMY_VISIBLE_DEVICES=npu-3", 3),
        ("Environment=DUMMY_VISIBLE_DEVICES=npu-4?", 4),
        ("AddDevice=dummy.com/npu=npu-5", 5),
    ] {
        printed(&mut quadlet_command(&engine, line)).unwrap();
        assert_eq!(engine.devices("npu-user"), [wanted], "{line}");
        remove(&engine, "npu-user");
    }
}

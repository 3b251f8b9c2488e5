//! Devices that are absent when compose or a quadlet starts a container, and that come later; and
//! files below a path that engines mask.

use std::fs;
use std::thread;
use std::time::Duration;

use harness::demo_host::in_container::node;
use harness::engine_root::Generation;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;
use serde_json::json;

use super::compose::{quadlet_command, remove, service};
use super::docker::{self, DockerLike, name_of};
use super::engine::printed;
use super::machine::Machine;
use super::podman;
use super::replugged::{MAY_MAKE_NODES, start_follower};
use crate::live::follow::tell;
use crate::live::placed::{STICKS, lead};

/// The demo device that the stick is.
const STICK: usize = 3;

fn start_with_sticks(machine: &Machine) {
    machine.devices.add_class("sticks", STICKS).unwrap();
    fs::create_dir(machine.devices.root().join("dev/by-id")).unwrap();
    start_follower(machine, "");
}

fn plug(machine: &Machine) {
    lead(&machine.devices, "/dev/by-id/x1", STICK);
    tell();
}

fn unplug(machine: &Machine) {
    fs::remove_file(machine.devices.root().join("dev/by-id/x1")).unwrap();
    tell();
}

/// Whether the container has the node. Its rule is revoked a moment before the node goes.
fn has_node(engine: &DockerLike, name: &str) -> bool {
    let script = format!("test ! -c {} || echo yes", node(STICK));
    let mut exec = engine.command("exec");
    let said = printed(exec.args([name, "/bin/sh", "-c", &script])).unwrap();
    said.trim() == "yes"
}

/// The stick comes, goes and comes back.
#[track_caller]
fn assert_comes_later(engine: &DockerLike, name: &str) {
    assert!(!has_node(engine, name));
    for _ in 0..2 {
        plug(&engine.machine);
        assert!(wait_until(|| has_node(engine, name)));
        assert_eq!(engine.devices(name), [STICK]);
        unplug(&engine.machine);
        assert!(wait_until(|| !has_node(engine, name)));
    }
}

#[test]
fn a_service_of_compose_gets_a_device_that_comes_later() {
    if let Some(reason) = docker::missing(Generation::Forky) {
        return skip::report("docker compose with a device that comes later", &reason);
    }
    let engine = docker::engine(Generation::Forky).unwrap();
    let machine = &engine.machine;
    start_with_sticks(machine);
    let mut late = service("late", ("environment", json!({"STICKS": "x1?"})));
    late["runtime"] = json!("boathook");
    let path = machine.path("compose.yaml");
    fs::write(&path, json!({"services": {"late": late}}).to_string()).unwrap();
    let compose = |arguments: &[&str]| {
        let mut command = engine.command("compose");
        command
            .args(["--project-name", "test", "--file"])
            .arg(&path);
        printed(command.args(arguments))
    };
    compose(&["up", "--detach"]).unwrap();
    assert_comes_later(&engine, "late");
    compose(&["restart"]).unwrap();
    assert_comes_later(&engine, "late");
    compose(&["down"]).unwrap();
    // It is unplugged while compose starts the container.
    for delay in [0, 200, 400, 600] {
        plug(machine);
        thread::scope(|scope| {
            let up = scope.spawn(|| compose(&["up", "--detach"]));
            thread::sleep(Duration::from_millis(delay));
            unplug(machine);
            up.join().unwrap().unwrap();
        });
        let is_gone = wait_until(|| !has_node(&engine, "late"));
        assert!(is_gone, "unplugged after {delay} ms");
        assert_comes_later(&engine, "late");
        compose(&["down"]).unwrap();
    }
}

#[test]
fn a_container_of_quadlet_gets_a_device_that_comes_later() {
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("quadlet with a device that comes later", &reason);
    }
    let engine = podman::by_hooks_d(Generation::Forky).unwrap();
    start_with_sticks(&engine.machine);
    let lines = format!("Environment=STICKS=x1?\nPodmanArgs={MAY_MAKE_NODES}");
    printed(&mut quadlet_command(&engine, &lines)).unwrap();
    assert_comes_later(&engine, "npu-user");
    printed(engine.command("restart").args(["--time=0", "npu-user"])).unwrap();
    assert_comes_later(&engine, "npu-user");
    remove(&engine, "npu-user");
}

/// The engines mask /sys/firmware by themselves.
#[test]
fn files_below_a_masked_path_are_seen_behind_the_wrapper() {
    const MODEL: &str = "/sys/firmware/devicetree/base/model";
    const BOARD: &str = "version = 1\nresource = 'example.com/board'\n\
        request = { env = 'BOARDS' }\ndiscover = [{ count = 1 }]\n\
        [device]\nid = 'board-{index}'\n\
        [[edits]]\nfiles = ['/sys/firmware/devicetree/base/model']\n";
    let generation = Generation::OfThisMachine;
    for (name, missing, start) in [
        (
            "docker",
            docker::missing(generation),
            docker::engine as fn(Generation) -> anyhow::Result<DockerLike>,
        ),
        (
            "podman",
            podman::missing(generation),
            podman::by_runtime_alone,
        ),
    ] {
        if let Some(reason) = missing {
            skip::report(&format!("masked paths with {name}"), &reason);
            continue;
        }
        let engine = start(generation).unwrap();
        let host = &engine.machine.devices;
        host.add_class("board", BOARD).unwrap();
        host.add_file(MODEL, "Board 5\n").unwrap();
        host.add_file("/sys/firmware/acpi/tables/DSDT", "secret\n")
            .unwrap();
        let script = format!("cd /sys/firmware; find . -type f; cat {MODEL}");
        for (request, expected) in [
            ("BOARDS=all", "./devicetree/base/model\nBoard 5\n"),
            ("BOARDS=void", ""),
        ] {
            let mut run = engine.command("run");
            run.args(["--rm", "--network=none", "--env", request])
                .args(&engine.options)
                .arg(name_of(Rootfs::Busybox))
                .args(["/bin/sh", "-c", &format!("{script} 2>/dev/null; true")]);
            let said = printed(&mut run).unwrap();
            assert_eq!(said, expected, "{name}, {request}");
        }
    }
}

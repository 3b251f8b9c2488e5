//! `boathook follow` beside engines: devices of their containers that are unplugged and come
//! back.

use std::fs;
use std::process::Command;

use anyhow::Result;
use harness::binaries;
use harness::demo_host::DemoHost;
use harness::engine_root::Generation;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;

use super::docker::DockerLike;
use super::engine::{ContainerSettings, Engine};
use super::followed::{has_device, opens};
use super::machine::Machine;
use super::{bundles, cdi, ctr, docker, podman};
use crate::live::follow::replug;

const OTHER: usize = DemoHost::UNLIKE;

/// Which podman does not allow by itself.
pub(super) const MAY_MAKE_NODES: &str = "--cap-add=MKNOD";

type Missing = fn(Generation) -> Option<String>;
type Start<E> = fn(Generation) -> Result<E>;

/// Which containers have users of their own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnUsers {
    Nobody,
    One,
    All,
}

#[test]
fn devices_follow_containers_of_docker_and_podman() {
    use Generation::{Forky, OfThisMachine};
    use OwnUsers::{All, Nobody, One};
    let podman: [(&str, Generation, Start<DockerLike>, OwnUsers); 3] = [
        ("podman, hooks.d", OfThisMachine, podman::by_hooks_d, One),
        ("podman, CDI", OfThisMachine, podman::by_cdi, Nobody),
        // With users of its own podman 5 mounts the root where nobody else sees it.
        ("podman of forky", Forky, podman::by_hooks_d, Nobody),
    ];
    let docker: [(&str, Generation, Start<DockerLike>, OwnUsers); 3] = [
        ("docker", OfThisMachine, docker::engine, Nobody),
        ("docker, userns-remap", OfThisMachine, docker::remapped, All),
        ("docker of forky, CDI", Forky, docker::by_cdi, Nobody),
    ];
    let podman = podman.map(|engine| (podman::missing as Missing, engine));
    let docker = docker.map(|engine| (docker::missing as Missing, engine));
    for (missing, (name, generation, start, own_users)) in podman.into_iter().chain(docker) {
        match missing(generation) {
            Some(reason) => skip::report(&format!("follow with {name}"), &reason),
            None => {
                let mut engine = start(generation).unwrap();
                engine.options.push(MAY_MAKE_NODES.to_owned());
                follow(name, &engine.machine, &engine, own_users);
            }
        }
    }
}

#[test]
fn devices_follow_containers_of_containerd_and_runtimes() {
    let generation = Generation::OfThisMachine;
    match ctr::missing(generation) {
        Some(reason) => skip::report("follow with containerd", &reason),
        None => {
            let engine = ctr::Ctr::new(generation).unwrap();
            follow(
                "containerd, ctr",
                engine.machine(),
                &engine,
                OwnUsers::Nobody,
            );
        }
    }
    for (runtime, generation) in [("crun", generation), ("runc", Generation::Forky)] {
        match bundles::missing(generation, runtime) {
            Some(reason) => skip::report(&format!("follow with {runtime}"), &reason),
            None => {
                let engine = bundles::Bundles::new(generation, runtime).unwrap();
                follow(runtime, engine.machine(), &engine, OwnUsers::One);
            }
        }
    }
}

/// Starts `boathook follow`, which ends with the machine.
pub(super) fn start_follower(machine: &Machine, class: &str) {
    let program = binaries::program("boathook").unwrap();
    start_follower_by(machine, machine.private.command(program), class);
}

/// The same by a command whose arguments follow.
#[expect(clippy::zombie_processes, reason = "it ends with the machine")]
pub(super) fn start_follower_by(machine: &Machine, mut follow: Command, class: &str) {
    let file = machine.private.file("/etc/boathook/config.toml");
    let config = fs::read_to_string(&file).unwrap();
    fs::write(&file, config + class).unwrap();
    let log = machine.path("follow.log");
    let ready = || fs::read_to_string(&log).is_ok_and(|said| said.contains("following devices"));
    machine
        .start("follow", follow.args(["follow", "--verbose"]), ready)
        .unwrap();
}

pub(super) const FOLLOWED: &str = "\n[class.dummy-npu]\nfollow = true\n";

/// Two containers have the device: with a read-only root, or with users of its own; a third one
/// gets it while it has another number.
fn follow(name: &str, machine: &Machine, engine: &dyn Engine, own_users: OwnUsers) {
    let host = &machine.devices;
    start_follower(machine, FOLLOWED);
    let start = |devices: &str, readonly: bool, user_namespace: bool| {
        let wanted = ContainerSettings {
            readonly,
            user_namespace,
            ..ContainerSettings::new(Rootfs::Busybox, Some(devices))
        };
        engine.start(&wanted).unwrap()
    };
    let mut containers = vec![
        start("npu-3", true, false),
        start("npu-3,npu-7", false, own_users == OwnUsers::One),
    ];
    for round in 0..2 {
        for now in [None, Some(OTHER), Some(3)] {
            replug(host, 3, now);
            for container in &containers {
                let is = wait_until(|| has_device(&**container, host, 3, now));
                assert!(is, "{name}, {round}: {now:?}: {}", said(machine));
            }
            let has_other = has_device(&*containers[1], host, OTHER, Some(OTHER));
            assert!(has_other, "{name}, {round}");
            let gone = [3, OTHER].into_iter().filter(|index| Some(*index) != now);
            // With users of its own it can make no node.
            for gone in gone.filter(|_| own_users != OwnUsers::All) {
                let first_and_last = [containers.first(), containers.get(2)];
                for (at, container) in first_and_last.into_iter().flatten().enumerate() {
                    let opens = opens(&**container, host, gone);
                    assert!(!opens, "{name}, {round}, {at}: {gone}, now {now:?}");
                }
            }
            if now == Some(OTHER) && round == 0 {
                // As the service does that keeps it right. Docker gives a container the node
                // with the number that it saw first.
                cdi::generate(machine, &[]).unwrap();
                containers.push(start("npu-3", false, false));
            }
        }
    }
}

pub(super) fn said(machine: &Machine) -> String {
    fs::read_to_string(machine.path("follow.log")).unwrap_or_default()
}

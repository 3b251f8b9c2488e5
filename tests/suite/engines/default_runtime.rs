//! `boathook-init install --set-default` with a real dockerd: whatever was the default
//! runtime starts the containers afterwards, too.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use harness::binaries;
use harness::captured::Captured;
use harness::engine_root::Generation;
use harness::image::Image;
use harness::probe;
use harness::rootfs::Rootfs;
use serde_json::json;

use super::docker::{self, UserNamespaces, name_of};
use super::engine::printed;
use super::machine::{self, Machine};
use crate::said::assert_says;

const DAEMON_JSON: &str = "/etc/docker/daemon.json";
const CONFIG: &str = "/etc/boathook/config.toml";

/// A machine with docker, which is not running and of which no configuration of Boathook's
/// names a runtime. Its daemon.json has `default` as the default runtime.
fn stopped(default: Option<&str>) -> Machine {
    let more = match default {
        Some(path) => json!({"default-runtime": "mine", "runtimes": {"mine": {"path": path}}}),
        None => json!({}),
    };
    let generation = Generation::OfThisMachine;
    let machine = docker::unconfigured(generation, UserNamespaces::None, &more).unwrap();
    fs::remove_file(machine.private.file(CONFIG)).unwrap();
    machine
}

fn missing(programs: &[&str]) -> Option<String> {
    machine::missing(Generation::OfThisMachine, programs)
}

fn init(machine: &Machine, line: &str) -> Captured {
    let program = binaries::program("boathook-init").unwrap();
    let mut command = machine.private.command(&program);
    Captured::run(command.args(line.split_whitespace())).unwrap()
}

/// The installation of ours as docker's default runtime.
fn install() -> String {
    let program = binaries::program("boathook-init").unwrap();
    let source = program.parent().unwrap().display();
    format!("install --engine docker --set-default --classes=none --source {source}")
}

/// Starts dockerd with an option, or says why it does not start.
fn start_with(machine: &Machine, option: &str) -> anyhow::Result<()> {
    let mut daemon = machine.private.command("dockerd");
    daemon.arg(option);
    let ready = || printed(docker::client(machine).arg("version")).is_ok();
    machine.start("dockerd", &mut daemon, ready).map(drop)
}

#[test]
fn docker_with_an_option_for_the_default_runtime_is_left_alone() {
    let test = "docker's default runtime as an option";
    if let Some(reason) = missing(&["dockerd", "docker", "containerd", "runc"]) {
        return skip::report(test, &reason);
    }
    let option = "--default-runtime=runc";
    let drop_in = "/etc/systemd/system/docker.service.d/runtime.conf";
    let machine = stopped(None);
    let before = fs::read_to_string(machine.private.file(DAEMON_JSON)).unwrap();
    let unit = format!("[Service]\nExecStart=\nExecStart=/usr/sbin/dockerd {option}\n");
    machine
        .write(
            "/etc/systemd/system/docker.service",
            "[Service]\nExecStart=dockerd\n",
        )
        .unwrap();
    machine.write(drop_in, &unit).unwrap();
    let refused = |source: &str| {
        let ran = init(&machine, &install());
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        assert_says(&ran.stderr, &[option, source, "--set-default"]);
        let now = fs::read_to_string(machine.private.file(DAEMON_JSON)).unwrap();
        assert_eq!(now, before);
    };
    refused(drop_in);
    fs::remove_file(machine.private.file(drop_in)).unwrap();
    start_with(&machine, option).unwrap();
    refused("the command line of process");

    // What would happen otherwise.
    let other = stopped(None);
    init(&other, &install()).success().unwrap();
    let error = start_with(&other, option).unwrap_err().to_string();
    assert!(
        error.contains("both as a flag and in the configuration file"),
        "{error}"
    );
}

/// A program named crun that says that it was called, and becomes runc: crun itself does not
/// work on every machine with cgroup v1.
const CRUN: &str = "/opt/site/crun";
const CALLED: &str = "/run/crun-was-called";

fn add_crun(machine: &Machine) {
    let script = format!("#!/bin/sh\ntouch {CALLED}\nexec runc \"$@\"\n");
    machine.write(CRUN, &script).unwrap();
    let file = machine.private.file(CRUN);
    fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_runtime_that_was_dockers_default_starts_its_containers() {
    let test = "docker's default runtime crun";
    if let Some(reason) = missing(&["dockerd", "docker", "containerd", "runc"]) {
        return skip::report(test, &reason);
    }
    let machine = stopped(Some(CRUN));
    add_crun(&machine);
    let before = fs::read_to_string(machine.private.file(DAEMON_JSON)).unwrap();
    docker::start_daemon(&machine).map(drop).unwrap();
    docker::place_as_by_default(&machine).unwrap();
    let docker = |arguments: &[&str]| printed(docker::client(&machine).args(arguments)).unwrap();
    let default = || {
        docker(&["info", "--format", "{{.DefaultRuntime}}"])
            .trim()
            .to_owned()
    };
    assert_eq!(default(), "mine");

    let planned = init(&machine, &format!("{} --dry-run", install()))
        .success()
        .unwrap();
    let path = format!("it calls {CRUN}");
    assert_says(
        &planned.stdout,
        &["the default runtime boathook replaces mine", &path],
    );
    init(&machine, &format!("{} --restart", install()))
        .success()
        .unwrap();
    assert_eq!(default(), "boathook");
    let image = Image::new(Rootfs::Busybox).unwrap();
    let layer = image.layer().to_str().unwrap().to_owned();
    docker(&["import", &layer, &name_of(Rootfs::Busybox)]);
    docker(&[
        "run",
        "--detach",
        "--network=none",
        "--stop-timeout=0",
        "--name=c1",
        &name_of(Rootfs::Busybox),
        probe::PATH,
        probe::PAUSE,
    ]);
    let inspected = docker(&["inspect", "--format={{.HostConfig.Runtime}}", "c1"]);
    assert_eq!(inspected.trim(), "boathook");
    assert!(machine.private.file(CALLED).exists());
    docker(&["rm", "--force", "c1"]);

    init(&machine, "uninstall --restart").success().unwrap();
    assert_eq!(default(), "mine");
    let after = fs::read_to_string(machine.private.file(DAEMON_JSON)).unwrap();
    assert_eq!(after, before);
    assert!(!machine.private.file(CONFIG).exists());
}

//! Engines between `boathook-init install --as nvidia`, which makes each link and name itself, and
//! `boathook-init uninstall`. The GPUs are those of a recording, and the class is the shipped one.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use anyhow::{Context, Result};
use harness::binaries;
use harness::class_files;
use harness::cri::Record;
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::patience::wait_until;
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use serde_json::{Value, json};

use super::cri::Cri;
use super::ctr::{self, kill_inside};
use super::docker::{self, DockerLike, Requests, UserNamespaces, name_of};
use super::engine::{ContainerSettings, Engine, printed};
use super::machine::Machine;

/// The GPU with the minor number 0, which is the second one on the bus.
const SECOND: &str = "GPU-b0f66a81-7f0c-4a6e-a7d9-5a3c9a1d2f77";

const DAEMON: &str = "/etc/docker/daemon.json";

/// Runs boathook-init. `install` has the class files of a release.
fn run_init(machine: &Machine, arguments: &str) -> Result<String> {
    let program = binaries::program("boathook-init")?;
    let mut command = machine.private.command(&program);
    command.args(arguments.split(' '));
    if arguments.starts_with("install") {
        let programs = program.parent().context("a program in no directory")?;
        command.arg("--source").arg(programs);
        command.arg("--classes").arg(copy_classes(machine)?);
    }
    printed(&mut command)
}

/// Copies the shipped class files to a directory that the machine sees.
fn copy_classes(machine: &Machine) -> Result<PathBuf> {
    let directory = machine.path("classes");
    fs::create_dir_all(&directory)?;
    class_files::copy_all(&directory)?;
    Ok(directory)
}

/// Recordings of a host with two GPUs, and of one with four.
const NVIDIA: &str = "nvidia-gpu/h200";
const AMD: &str = "amd-gpu/xgmi";

/// Returns a machine with Docker's own settings, and the host of a recording. The configuration leads
/// to the host, and to the classes that are installed.
fn with_recorded_gpus(generation: Generation, recording: &str) -> (Machine, RecordedHost) {
    let no_namespaces = UserNamespaces::None;
    let machine = docker::unconfigured(generation, no_namespaces, &json!({})).unwrap();
    let recording = format!("device-class/testdata/{recording}/host.txt");
    let recording = fs::read_to_string(binaries::source_tree().join(recording)).unwrap();
    let host = RecordedHost::bare(&recording).unwrap();
    let config = format!(
        "host_root = {:?}\n[runtime]\npath = {:?}\n",
        host.root(),
        generation.program("runc").unwrap()
    );
    machine.write("/etc/boathook/config.toml", &config).unwrap();
    (machine, host)
}

/// Returns the nodes in /dev of a container that waits whose names match `pattern`.
fn list_nodes(engine: &DockerLike, name: &str, pattern: &str) -> String {
    let mut exec = engine.command("exec");
    let script = format!("cd /dev; echo {pattern}");
    printed(exec.args([name, "sh", "-c", &script])).unwrap()
}

/// Starts a container with these options, and returns its GPUs and its config.json.
fn start_with_gpus(engine: &DockerLike, options: &[&str]) -> (String, Value) {
    engine.run_waiting("gpus", &[options, &["--network=none"]].concat());
    let gpus = list_nodes(engine, "gpus", "nvidia[0-9]");
    let id = printed(engine.command("inspect").args(["--format={{.Id}}", "gpus"])).unwrap();
    let bundles = engine.machine.path("exec").join("containerd/daemon");
    let config = format!(
        "io.containerd.runtime.v2.task/moby/{}/config.json",
        id.trim()
    );
    let config = fs::read_to_string(bundles.join(config)).unwrap();
    printed(engine.command("rm").args(["--force", "gpus"])).unwrap();
    (gpus, serde_json::from_str(&config).unwrap())
}

/// Starts dockerd with a client and images.
fn start_docker(machine: Machine) -> (DockerLike, Child) {
    let daemon = docker::start_daemon(&machine).unwrap();
    let (variable, no_namespaces) = (Requests::Variable, UserNamespaces::None);
    let engine = DockerLike::new(machine, docker::client, variable, &[], no_namespaces);
    (engine.unwrap(), daemon)
}

#[test]
fn docker_gives_gpus_from_the_installation_to_the_removal() {
    for generation in [
        Generation::OfThisMachine,
        Generation::Forky,
        Generation::Resolute,
    ] {
        if let Some(reason) = docker::missing(generation) {
            let name = format!("an installation for --gpus of {generation:?}");
            skip::report(&name, &reason);
            continue;
        }
        let (machine, _host) = with_recorded_gpus(generation, NVIDIA);
        let before = fs::read_to_string(machine.private.file(DAEMON)).unwrap();
        run_init(&machine, "install --as nvidia --engine docker").unwrap();
        let (engine, mut daemon) = start_docker(machine);
        let second = format!("--gpus=\"device={SECOND}\"");
        for (options, gpus) in [
            (&["--gpus=all"][..], "nvidia0 nvidia1\n"),
            (&["--gpus=1"], "nvidia1\n"),
            (&[&second], "nvidia0\n"),
            (&["--gpus=all", "--runtime=nvidia"], "nvidia0 nvidia1\n"),
            (
                &["--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=0"],
                "nvidia1\n",
            ),
        ] {
            let (found, _) = start_with_gpus(&engine, options);
            assert_eq!(found, gpus, "{generation:?}: {options:?}");
        }

        let machine = &engine.machine;
        // The names go from the running dockerd too.
        docker::place_as_by_default(machine).unwrap();
        let options = "install --as nvidia --engine docker --restart";
        run_init(machine, options).unwrap();
        let options = "install --no-as --engine docker --restart";
        run_init(machine, options).unwrap();
        let mut run = engine.command("run");
        let busybox = name_of(Rootfs::Busybox);
        run.args([
            "--rm",
            "--network=none",
            "--runtime=nvidia",
            &busybox,
            "true",
        ]);
        let refusal = format!("{:#}", printed(&mut run).unwrap_err());
        assert!(refusal.contains("nvidia"), "{generation:?}: {refusal}");

        run_init(machine, "uninstall --restart").unwrap();
        let after = fs::read_to_string(machine.private.file(DAEMON)).unwrap();
        assert_eq!(after, before, "{generation:?}");
        kill_inside(&mut daemon).unwrap();
        docker::start_daemon(machine).map(drop).unwrap();
        for (option, reason) in [
            ("--gpus=all", "could not select device driver"),
            ("--runtime=nvidia", "nvidia"),
        ] {
            let mut run = engine.command("run");
            run.args(["--rm", "--network=none", option, &name_of(Rootfs::Busybox)]);
            let refusal = format!("{:#}", printed(run.arg("true")).unwrap_err());
            assert!(refusal.contains(reason), "{generation:?}: {refusal}");
        }
        let mut run = engine.command("run");
        run.args(["--rm", "--network=none", &name_of(Rootfs::Busybox), "true"]);
        printed(&mut run).unwrap();
    }
}

/// `--gpus` of Docker 28.3 and later means AMD's GPUs if dockerd finds the vendor's runtime and no
/// hook of NVIDIA's toolkit. It sets a variable, so that the container also needs the runtime.
#[test]
fn docker_gives_gpus_of_another_vendor() {
    for generation in [Generation::Forky, Generation::Resolute] {
        if let Some(reason) = docker::missing(generation) {
            let name = format!("--gpus of AMD's GPUs with {generation:?}");
            skip::report(&name, &reason);
            continue;
        }
        let (machine, _host) = with_recorded_gpus(generation, AMD);
        run_init(&machine, "install --as amd --engine docker").unwrap();
        let (engine, _daemon) = start_docker(machine);
        for (options, gpus) in [
            (
                &["--gpus=all", "--runtime=amd"][..],
                "renderD128 renderD129 renderD130 renderD131\n",
            ),
            (&["--gpus=2", "--runtime=amd"], "renderD128 renderD129\n"),
            (
                &["--gpus=\"device=1,3\"", "--runtime=amd"],
                "renderD129 renderD131\n",
            ),
            (
                &["--env=AMD_VISIBLE_DEVICES=2", "--runtime=amd"],
                "renderD130\n",
            ),
            (&["--gpus=all"], "renderD*\n"),
        ] {
            engine.run_waiting("gpus", &[options, &["--network=none"]].concat());
            let nodes = list_nodes(&engine, "gpus", "dri/renderD*").replace("dri/", "");
            assert_eq!(nodes, gpus, "{generation:?}: {options:?}");
            printed(engine.command("rm").args(["--force", "gpus"])).unwrap();
        }
    }
}

/// Docker asks for CDI devices of the vendor's kind after `boathook cdi generate`: `--device` of a
/// name always, and `--gpus` of a later Docker than 29.1 if it does not find the hook's name. The
/// runtime adds nothing to them.
#[test]
fn devices_of_a_specification_are_injected_once() {
    let generation = Generation::Resolute;
    if let Some(reason) = docker::missing(generation) {
        return skip::report("CDI devices beside --gpus of Docker 29", &reason);
    }
    let (machine, _host) = with_recorded_gpus(generation, NVIDIA);
    run_init(&machine, "install --as nvidia --engine docker").unwrap();
    let boathook = "/opt/boathook/current/bin/boathook";
    let mut generate = machine.private.command(boathook);
    printed(generate.args(["cdi", "generate", "nvidia-gpu"])).unwrap();
    let (engine, _daemon) = start_docker(machine);
    let (first, all) = ("--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=all");
    let of_image = "--env=NVIDIA_VISIBLE_DEVICES=all";
    for (options, gpus) in [
        (&["--gpus=all"][..], "nvidia0 nvidia1\n"),
        (&["--gpus=1", "--runtime=nvidia"], "nvidia1\n"),
        (&["--gpus=1", "--runtime=nvidia", of_image], "nvidia1\n"),
        (&[first], "nvidia1\n"),
        (&[all], "nvidia0 nvidia1\n"),
        (&[first, "--runtime=nvidia"], "nvidia1\n"),
        (&[first, "--runtime=nvidia", of_image], "nvidia1\n"),
    ] {
        let (found, config) = start_with_gpus(&engine, options);
        let hooks = config["hooks"].as_object().into_iter().flatten();
        let hooks = hooks.flat_map(|(_, hooks)| hooks.as_array().into_iter().flatten());
        let hooks: Vec<String> = hooks.map(|hook| hook["args"].to_string()).collect();
        assert_eq!(found, gpus, "{options:?}");
        assert_eq!(hooks.len(), 1, "{options:?}: {hooks:?}");
    }
}

#[test]
fn containerd_has_the_handler_from_the_installation_to_the_removal() {
    for generation in [Generation::OfThisMachine, Generation::Forky] {
        if let Some(reason) = ctr::missing(generation) {
            let name = format!("an installation for the handler nvidia of {generation:?}");
            skip::report(&name, &reason);
            continue;
        }
        let machine = Machine::new(generation, "runc").unwrap();
        let record = Record::new(&machine.path("checkpoint"));
        let config = fs::read_to_string(machine.devices.config_file()).unwrap();
        let config = config + &record.config();
        machine.write("/etc/boathook/config.toml", &config).unwrap();
        Cri::configure(&machine, "").unwrap();
        const CONFIGURATION: &str = "/etc/containerd/config.toml";
        let before = fs::read_to_string(machine.private.file(CONFIGURATION)).unwrap();
        run_init(&machine, "install --as nvidia --engine containerd").unwrap();
        let engine = Cri::start_for_vendor(machine, record).unwrap();
        let wanted = ContainerSettings::new(Rootfs::Busybox, Some("npu-3"));
        let running = engine.start(&wanted).unwrap();
        let seen = in_container::devices_by(|asked| running.exec(asked)).unwrap();
        assert_eq!(seen, [3], "{generation:?}");
        drop(running);

        let machine = engine.machine();
        run_init(machine, "uninstall").unwrap();
        let after = fs::read_to_string(machine.private.file(CONFIGURATION)).unwrap();
        assert_eq!(after, before, "{generation:?}");
        engine.containerd.restart().unwrap();
        let refuse = || match engine.start(&wanted) {
            Ok(_) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        wait_until(|| !refuse().contains("is not initialized yet"));
        let refusal = refuse();
        assert!(refusal.contains("nvidia"), "{generation:?}: {refusal}");
    }
}

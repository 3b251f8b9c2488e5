//! The image, built without a registry from programs that are there, and what it
//! installs for docker.

use std::fs;
use std::path::Path;

use harness::binaries;
use harness::captured::Captured;
use harness::engine_root::Generation;

use super::docker;
use super::engine::printed;
use super::machine::Machine;

/// A machine with docker, without anything of Boathook's.
fn machine(test: &str) -> Option<Machine> {
    let generation = Generation::OfThisMachine;
    if let Some(reason) = docker::missing(generation) {
        skip::report(test, &reason);
        return None;
    }
    Some(docker::bare(generation).unwrap())
}

fn docker(machine: &Machine, arguments: &[&str]) -> String {
    let mut command = docker::client(machine);
    // The old builder is in the daemon; the new one may be a plugin that is missing.
    command.env("DOCKER_BUILDKIT", "0");
    printed(command.args(arguments)).unwrap()
}

#[test]
fn the_image_installs_on_a_host() {
    let Some(machine) = machine("the image") else {
        return;
    };
    let sources = binaries::source_tree().join("initcontainer");
    let programs = binaries::program("boathook-init").unwrap();
    let context = machine.path("image");
    let mut gathered = std::process::Command::new(sources.join("image-files"));
    gathered.arg(programs.parent().unwrap()).arg(&context);
    printed(&mut gathered).unwrap();
    let file = context.join("Dockerfile");
    fs::copy(sources.join("Dockerfile.prebuilt"), &file).unwrap();
    let tag = "--tag=boathook:test";
    docker(&machine, &["build", tag, context.to_str().unwrap()]);

    let host = machine.path("target");
    fs::create_dir_all(host.join("etc/containerd")).unwrap();
    let mount = format!("--volume={}:/host", host.display());
    let image = "boathook:test";
    let run = [
        "run",
        "--rm",
        "--network=none",
        "--read-only",
        &mount,
        image,
    ];
    let init = |arguments: &[&str]| docker(&machine, &[&run[..], arguments].concat());
    let said = init(&["install", "--host-root=/host", "--engine=containerd"]);
    assert!(said.contains("+++ /etc/containerd/config.toml"), "{said}");
    let mut installed = std::process::Command::new(host.join("opt/boathook/current/bin/boathook"));
    printed(installed.arg("--version")).unwrap();
    assert!(init(&["status", "--host-root=/host"]).contains("containerd  yes"));
    init(&["uninstall", "--host-root=/host"]);
    let names = |directory: &Path| {
        fs::read_dir(directory)
            .unwrap()
            .map(|e| e.unwrap().file_name())
    };
    assert_eq!(names(&host).collect::<Vec<_>>(), ["etc"]);
    assert_eq!(names(&host.join("etc")).collect::<Vec<_>>(), ["containerd"]);
}

#[test]
fn docker_has_the_runtime_as_long_as_it_is_installed() {
    let Some(machine) = machine("the runtime of docker") else {
        return;
    };
    let program = binaries::program("boathook-init").unwrap();
    let init = |line: &str| {
        let mut command = machine.private.command(&program);
        Captured::run(command.args(line.split_whitespace())).unwrap()
    };
    let source = program.parent().unwrap().display();
    let install = format!("install --engine docker --source {source} --classes=none --restart");
    let format = "{{.DefaultRuntime}}{{range $name, $_ := .Runtimes}} {{$name}}{{end}}";
    let runtimes = || {
        let text = docker(&machine, &["info", "--format", format]);
        let mut names = text.split_whitespace().map(str::to_owned);
        (names.next().unwrap(), names.any(|name| name == "boathook"))
    };
    let config = machine.private.file("/etc/docker/daemon.json");
    let before = fs::read_to_string(&config).unwrap();

    docker::place_as_by_default(&machine).unwrap();
    let installed = init(&install).success().unwrap();
    assert_eq!(runtimes(), ("runc".to_owned(), true), "{installed:?}");
    init("status").success().unwrap();
    init(&format!("{install} --set-default")).success().unwrap();
    assert_eq!(runtimes(), ("boathook".to_owned(), true));
    init("status").success().unwrap();

    let installed = fs::read_to_string(&config).unwrap();
    let refused = init("uninstall");
    let message = &refused.stderr;
    assert!(!refused.status.success(), "{refused:?}");
    assert!(message.contains("as its default runtime"), "{message}");
    assert!(message.contains("--restart"), "{message}");
    assert_eq!(fs::read_to_string(&config).unwrap(), installed);

    init("uninstall --restart").success().unwrap();
    assert_eq!(runtimes(), ("runc".to_owned(), false));
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    assert!(!machine.private.file("/opt/boathook").exists());
}

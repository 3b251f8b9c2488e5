//! The lines that `boathook list PATH` prints give the device when they are pasted: behind
//! `docker run` and `podman run`, and into a unit of quadlet.

use std::process::Command;

use harness::binaries;
use harness::engine_root::Generation;

use super::compose::{quadlet_command, remove};
use super::docker::{self, DockerLike};
use super::engine::printed;
use super::podman;

const CONTAINER: &str = "npu-user";

/// Returns what `boathook list PATH` prints after the name of a program, such as `podman run`.
fn listed_line(engine: &DockerLike, program: &str) -> String {
    let boathook = binaries::program("boathook").unwrap();
    let mut list = engine.machine.private.command(&boathook);
    list.args(["list", "/dev/dummy-npu3"]);
    let listed = printed(&mut list).unwrap();
    let begin = format!("  {program} ");
    let line = listed.lines().find_map(|line| line.strip_prefix(&begin));
    line.unwrap_or_else(|| panic!("no {program} in {listed}"))
        .trim()
        .to_owned()
}

/// Splits a line into words as a shell does.
fn split_by_shell(line: &str) -> Vec<String> {
    let script = format!("printf '%s\\n' {line}");
    let words = printed(Command::new("/bin/sh").args(["-c", &script])).unwrap();
    words.lines().map(str::to_owned).collect()
}

fn assert_run_line_gives_device(engine: &DockerLike, program: &str) {
    let options = split_by_shell(&listed_line(engine, program));
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    let parent = engine.machine.parent.path();
    let parent = format!("--cgroup-parent={}", parent.display());
    options.extend(["--network=none", &parent]);
    engine.run_waiting(CONTAINER, &options);
    assert_eq!(engine.devices(CONTAINER), [3], "{options:?}");
    remove(engine, CONTAINER);
}

#[test]
fn the_listed_line_of_docker_gives_the_device() {
    if let Some(reason) = docker::missing(Generation::Forky) {
        return skip::report("the listed line for docker", &reason);
    }
    let engine = docker::engine(Generation::Forky).unwrap();
    assert_run_line_gives_device(&engine, "docker run");
}

#[test]
fn the_listed_lines_of_podman_give_the_device() {
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("the listed lines for podman", &reason);
    }
    let engine = podman::by_hooks_d(Generation::Forky).unwrap();
    assert_run_line_gives_device(&engine, "podman run");
    let line = listed_line(&engine, "quadlet");
    printed(&mut quadlet_command(&engine, &line)).unwrap();
    assert_eq!(engine.devices(CONTAINER), [3], "{line}");
    remove(&engine, CONTAINER);
}

//! The programs by themselves: their output and exit codes. Needs no root:
//! nothing here gets as far as a container.

mod authority;
mod broken_classes;
mod cdi;
mod class_check;
mod classes;
mod confinement;
mod damaged;
mod deadline;
mod doctor;
mod explain;
mod help;
mod hook;
mod install;
mod json_keys;
mod list;
mod log;
mod manners;
mod mistakes;
mod output;
mod process;
mod requests;
mod state;
mod usage;

use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::said::assert_says;

/// Exit codes, as `boathook --help` lists them.
mod code {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const FAILURE: i32 = 1;
    pub(super) const USAGE: i32 = 2;
    pub(super) const CONFIG: i32 = 3;
    pub(super) const SPEC: i32 = 4;
    pub(super) const REQUEST: i32 = 5;
    pub(super) const DEADLINE: i32 = 7;
}

/// `boathook` on this host.
fn boathook(host: &HostDirectory, arguments: &[&str], input: &[u8]) -> Captured {
    run("boathook", host, arguments, input)
}

/// `boathook-hook` on this host.
fn hook(host: &HostDirectory, arguments: &[&str], input: &[u8]) -> Captured {
    run("boathook-hook", host, arguments, input)
}

fn run(program: &str, host: &HostDirectory, arguments: &[&str], input: &[u8]) -> Captured {
    let mut command = with_private_run();
    command
        .arg(binaries::program(program).unwrap())
        .arg("--config")
        .arg(host.config_file())
        .args(arguments);
    Captured::run_with_input(&mut command, input).unwrap()
}

/// The same for a command that has to succeed.
fn succeeds(host: &HostDirectory, arguments: &[&str]) -> Captured {
    boathook(host, arguments, b"").success().unwrap()
}

/// For the arguments: a command that does not write to the machine's /run/boathook, where
/// it would log before it has read its configuration.
fn with_private_run() -> Command {
    Command::new(binaries::program("private-run").unwrap())
}

/// A host with a class `thing`, which ends so.
fn host_with_thing(end: &str) -> HostDirectory {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/thing'\nrequest = { env = 'THINGS' }\n";
    host.add_class("thing", &format!("{class}{end}")).unwrap();
    host
}

/// The hook, for a container that is created from `bundle`.
fn prestart(host: &HostDirectory, bundle: &TempDir) -> Captured {
    let input = state(bundle.path()).to_string();
    hook(host, &["prestart"], input.as_bytes())
}

/// Fails unless the program ended with `code`, printed nothing to stdout, and one
/// line with all of `words` in it.
#[track_caller]
pub(crate) fn assert_refused(ran: &Captured, code: i32, words: &[&str]) {
    let said = &ran.stderr;
    assert_eq!(ran.status.code(), Some(code), "{said}");
    assert_eq!(ran.stdout, "");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_says(said, &[words, &["boathook: "]].concat());
}

/// A directory with a config.json whose container has this environment.
fn bundle(env: &[(&str, &str)]) -> TempDir {
    let env = env.iter().map(|(name, value)| format!("{name}={value}"));
    bundle_of(&config(&env.collect::<Vec<_>>()))
}

/// The config.json of a container with this environment.
fn config(env: &[impl Serialize]) -> Value {
    json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"env": env}})
}

fn bundle_of(config: &Value) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
    directory
}

/// The config.json of a pod's container with annotations of its allocation, as
/// containerd writes it.
fn of_pod(annotations: &[(&str, &str)]) -> Value {
    let uid = "7c7dd54d-787e-4d2a-16bb-d8e6ec744689";
    let mut config = json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "annotations": {
            "io.kubernetes.cri.container-name": "c",
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.sandbox-uid": uid,
        },
        "linux": {"cgroupsPath": format!("/kubepods/pod{uid}/c")},
    });
    for (key, value) in annotations {
        config["annotations"][*key] = (*value).into();
    }
    config
}

/// The State of a container that is being created from `bundle`. Its process is
/// the test's own, which exists and in which nothing may be changed.
fn state(bundle: &Path) -> Value {
    json!({
        "ociVersion": "1.0.2",
        "id": "the-container",
        "status": "creating",
        "pid": std::process::id(),
        "bundle": bundle,
    })
}

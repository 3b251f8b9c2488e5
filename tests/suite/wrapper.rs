//! The program `boathook-runtime`, before a runtime that only reports how it was
//! called. Needs no root.

mod config_json;
mod pass_through;
mod real_runtime;
mod refusals;
mod signals;
mod update;

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::captured::Captured;
use harness::compile::{self, Libc};
use harness::demo_host::{DemoHost, HostDirectory};
use harness::{binaries, scratch};
use serde_json::{Value, json};
use tempfile::TempDir;

const CLASS: &str = r#"
    version = 1
    description = "devices that bring a file"
    resource = "dummy.com/npu"
    [request]
    env = "DUMMY_VISIBLE_DEVICES"
    [[discover]]
    count = 64
    [device]
    id = "npu-{index}"
    index = "{index}"
    [[edits]]
    files = ["/etc/dummy-npu.conf"]
"#;

/// A host whose real runtime reports how it was called.
struct Lab {
    host: HostDirectory,
    runtime: PathBuf,
}

impl Lab {
    fn new() -> Self {
        let lab = Lab {
            host: HostDirectory::new().unwrap(),
            runtime: compile::program("fake-runtime.c", Libc::Glibc, &["-static"]).unwrap(),
        };
        // A class that has something to give where nobody can make a device.
        lab.host.add_class("dummy-npu", CLASS).unwrap();
        lab.host.add_file("/etc/dummy-npu.conf", "").unwrap();
        lab.configure(&lab.runtime);
        lab
    }

    /// Makes another program the real runtime.
    fn configure(&self, runtime: &Path) {
        let more = format!("[runtime]\npath = {runtime:?}\n");
        self.host.write_config(&more).unwrap();
    }

    /// Makes a script the real runtime.
    fn configure_script(&self, script: &str) {
        let path = self.host.path().join("script");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        self.configure(&path);
    }

    fn command<T: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = T>) -> Command {
        let mut command = Command::new(binaries::program("private-run").unwrap());
        command
            .arg(binaries::program("boathook-runtime").unwrap())
            .env("BOATHOOK_CONFIG", self.host.config_file())
            .args(arguments);
        command
    }

    fn run<T: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = T>) -> Captured {
        Captured::run(&mut self.command(arguments)).unwrap()
    }

    fn create(&self, bundle: &Path) -> Captured {
        let bundle = bundle.to_str().unwrap();
        self.run(["create", "--bundle", bundle, "the-container"])
    }
}

/// The arguments with which the runtime was called, its name first.
fn arguments(ran: &Captured) -> Vec<&str> {
    let lines = ran.stdout.lines();
    lines.filter_map(|line| line.strip_prefix("arg ")).collect()
}

/// A config.json like an engine's, whose container has one variable.
fn config(value: &str) -> Value {
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"env": ["PATH=/bin", format!("{}={value}", DemoHost::VARIABLE)]},
        "linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}},
    })
}

/// A bundle with this text as its config.json.
fn bundle(text: &str) -> TempDir {
    let directory = scratch::directory("bundle").unwrap();
    fs::write(directory.path().join("config.json"), text).unwrap();
    directory
}

fn config_of(bundle: &Path) -> String {
    fs::read_to_string(bundle.join("config.json")).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

//! A host, and a release to install on it, both in a temporary directory.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;

use initcontainer::compatibility::ReplacedToolkits;
use initcontainer::host::Host;
use initcontainer::install::{self, InstallationPlan};
use initcontainer::payload::{ClassFileSource, PROGRAM_NAMES, Payload};
use initcontainer::step;
use initcontainer::uninstall;
use runtime_config::{Engine, InstallOptions};

use crate::tree;

/// A host and a release.
pub(crate) struct Site {
    dir: tempfile::TempDir,
    pub(crate) host: Host,
}

impl Site {
    /// Makes a host with the files below `before`, and a release.
    pub(crate) fn new(before: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("host");
        fs::create_dir(&root).unwrap();
        tree::copy(before, &root);
        let site = Self {
            host: Host::open(&root).unwrap(),
            dir,
        };
        site.set_programs(b"one");
        site
    }

    /// Makes a host with containerd 1.7.
    pub(crate) fn with_containerd() -> Self {
        let site = Self::new(&fixture("containerd/1.7-kubeadm"));
        site.add_program("containerd");
        site
    }

    /// Adds a program with this name to the host, so that an engine is found.
    pub(crate) fn add_program(&self, name: &str) {
        self.write(&format!("usr/bin/{name}"), "");
    }

    pub(crate) fn root(&self) -> &Path {
        self.host.as_path()
    }

    /// Returns the path of a file of the host.
    pub(crate) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.root().join(file)
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        write(&self.path(file), text);
    }

    pub(crate) fn make_dirs(&self, directories: &[&str]) {
        for directory in directories {
            fs::create_dir_all(self.path(directory)).unwrap();
        }
    }

    pub(crate) fn release(&self) -> PathBuf {
        self.dir.path().join("release")
    }

    /// Fills the release with programs that differ by their last bytes.
    pub(crate) fn set_programs(&self, tail: &[u8]) {
        for name in PROGRAM_NAMES {
            let program = [elf_header(), tail.to_vec()].concat();
            write(&self.release().join("bin").join(name), program);
        }
        let class = fixtures().join("../../device-class/classes/dummy-npu.toml");
        let installed = self.release().join("classes.d/dummy-npu.toml");
        write(&installed, fs::read(class).unwrap());
    }

    /// Writes the file with the release's version.
    pub(crate) fn write_release_version(&self, version: &str) {
        write(&self.release().join("version"), format!("{version}\n"));
    }

    /// Adds the plugin to the release.
    pub(crate) fn add_plugin(&self) {
        write(&self.release().join("bin/boathook-plugin"), elf_header());
    }

    /// Adds a class of the toolkit `vendor` to the release. The host has a device of it.
    pub(crate) fn add_toolkit(&self) {
        let class = "version = 1\ndescription = \"cards\"\nresource = \"vendor.com/card\"\n\
            discover = [{ count = 1 }]\n[request]\nenv = \"VENDOR_VISIBLE_DEVICES\"\n\
            [device]\nid = \"card-{index}\"\n[compatibility]\nname = \"vendor\"\n\
            hook_programs = [\"vendor-hook\"]\nruntime_programs = [\"vendor-runtime\"]\n\
            runtimes = [\"vendor\"]\n";
        write(&self.release().join("classes.d/vendor-card.toml"), class);
    }

    pub(crate) fn payload(&self, version: &str) -> Payload {
        payload(version, &self.release())
    }

    pub(crate) fn plan(
        &self,
        version: &str,
        engines: &[Engine],
    ) -> anyhow::Result<InstallationPlan> {
        plan(&self.host, &self.payload(version), engines)
    }

    pub(crate) fn install(&self, version: &str, engines: &[Engine]) {
        let plan = self.plan(version, engines).unwrap();
        step::execute_steps(&self.host, &plan.steps, |_| Ok(())).unwrap();
    }

    pub(crate) fn uninstall(&self) {
        let plan = uninstall::plan(&self.host, &[], false).unwrap();
        step::execute_steps(&self.host, &plan.steps, |_| Ok(())).unwrap();
    }

    /// Runs the program on this host.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(crate) fn without_source(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_boathook-init"));
        command.arg("--host-root").arg(self.root()).args(arguments);
        command
    }

    /// Returns the command of an installation as a line for a shell.
    pub(crate) fn install_line(&self) -> String {
        let (program, root) = (env!("CARGO_BIN_EXE_boathook-init"), self.root().display());
        let release = self.release();
        let release = release.display();
        format!("{program} --host-root {root} install --source {release}")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.without_source(arguments);
        if ["install", "upgrade"].contains(&arguments[0]) {
            command.arg("--source").arg(self.release());
        }
        command
    }
}

/// Reads a release. Like the program on a host below another root, it records no path of it.
pub(crate) fn payload(version: &str, release: &Path) -> Payload {
    let mut payload = Payload::read(version, release, ClassFileSource::Release).unwrap();
    payload.options.source_dir = None;
    payload
}

/// Plans an installation under the names of the toolkit `vendor`, if the release has its class.
pub(crate) fn plan(
    host: &Host,
    payload: &Payload,
    engines: &[Engine],
) -> anyhow::Result<InstallationPlan> {
    let mut toolkits = Vec::new();
    if payload.class_file_names().contains("vendor-card.toml") {
        toolkits.push("vendor".to_owned());
    }
    let names = ReplacedToolkits::find(host, payload, &toolkits)?;
    let options = InstallOptions {
        additional_names: names.runtime_names.clone(),
        ..options(host)
    };
    let engines: Vec<_> = engines.iter().map(|e| (*e, options.clone())).collect();
    install::plan(host, payload, &engines, &names, false)
}

/// Writes a file. The file's directory is made first.
pub(crate) fn write(file: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
}

/// The version that the program installs, which is its own.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn options(host: &Host) -> InstallOptions {
    InstallOptions {
        hook_path: host.directories().hook_path(),
        runtime_path: host.runtime_path(),
        set_default: false,
        real_runtime_path: None,
        additional_names: Vec::new(),
        base_spec: None,
    }
}

/// Returns the tree of a host before an installation, from the fixtures of runtime-config.
pub(crate) fn fixture(name: &str) -> PathBuf {
    fixtures().join(name).join("before")
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime-config/testdata")
}

/// Returns the ELF header of a program for this machine.
fn elf_header() -> Vec<u8> {
    let program = fs::read(env!("CARGO_BIN_EXE_boathook-init")).unwrap();
    program[..64].to_vec()
}

/// Returns the error output of a run that must have failed.
pub(crate) fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the output of a run that must have succeeded.
pub(crate) fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a shell line in a new mount namespace. Returns `None`, and reports the test as skipped, if
/// this process may not mount.
pub(crate) fn with_mounts(line: &str) -> Option<Output> {
    if !nix::unistd::geteuid().is_root() {
        skip::report("an installation among mounts", "mounting needs root");
        return None;
    }
    let line = format!("set -e; mount --make-rprivate /; {line}");
    let mut command = Command::new("unshare");
    let output = command.args(["-m", "sh", "-c", &line]).output();
    Some(output.unwrap())
}

/// Starts a Docker daemon that replies to each query with the next text of `answers`.
pub(crate) fn docker_daemon(socket: &Path, answers: Vec<String>) -> JoinHandle<()> {
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 256]).unwrap() > 0);
            write!(stream, "HTTP/1.0 200 OK\r\n\r\n{answer}").unwrap();
        }
    })
}

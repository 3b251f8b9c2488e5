//! A host and a release to install on it, both in a temporary directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use initcontainer::install::{self, Installation};
use initcontainer::layout::{HOOK, RUNTIME};
use initcontainer::payload::{ClassFiles, Payload};
use initcontainer::step;
use initcontainer::uninstall;
use runtime_config::{Engine, HostRoot, Options};

use crate::tree;

/// A host and a release.
pub(crate) struct Site {
    dir: tempfile::TempDir,
    pub(crate) host: HostRoot,
}

impl Site {
    /// A host that has the files under `before`, and a release.
    pub(crate) fn new(before: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("host");
        fs::create_dir(&root).unwrap();
        tree::copy(before, &root);
        let site = Self {
            host: HostRoot::open(&root).unwrap(),
            dir,
        };
        site.set_programs(b"one");
        site
    }

    /// A host with containerd 1.7.
    pub(crate) fn with_containerd() -> Self {
        let site = Self::new(&fixture("containerd/1.7-kubeadm"));
        site.add_program("containerd");
        site
    }

    /// Puts a program of this name on the host, by which an engine is found.
    pub(crate) fn add_program(&self, name: &str) {
        let dir = self.root().join("usr/bin");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(name), "").unwrap();
    }

    pub(crate) fn root(&self) -> &Path {
        self.host.as_path()
    }

    pub(crate) fn release(&self) -> PathBuf {
        self.dir.path().join("release")
    }

    /// Fills the release with programs that differ by their last bytes.
    pub(crate) fn set_programs(&self, tail: &[u8]) {
        let (bin, classes) = (self.release().join("bin"), self.release().join("classes.d"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&classes).unwrap();
        for name in ["boathook", "boathook-runtime", "boathook-init"] {
            fs::write(bin.join(name), [elf_header(), tail.to_vec()].concat()).unwrap();
        }
        let class = fixtures().join("../../device-class/classes/dummy-npu.toml");
        fs::copy(class, classes.join("dummy-npu.toml")).unwrap();
    }

    pub(crate) fn payload(&self, version: &str) -> Payload {
        Payload::read(version, &self.release(), ClassFiles::OfSource).unwrap()
    }

    pub(crate) fn plan(&self, version: &str, engines: &[Engine]) -> anyhow::Result<Installation> {
        install::plan(
            &self.host,
            &self.payload(version),
            engines,
            &options(),
            false,
        )
    }

    pub(crate) fn install(&self, version: &str, engines: &[Engine]) {
        let plan = self.plan(version, engines).unwrap();
        step::run(&self.host, &plan.steps, |_| Ok(())).unwrap();
    }

    pub(crate) fn uninstall(&self) {
        let plan = uninstall::plan(&self.host, &[], false).unwrap();
        step::run(&self.host, &plan.steps, |_| Ok(())).unwrap();
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

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.without_source(arguments);
        if arguments[0] == "install" {
            command.arg("--source").arg(self.release());
        }
        command
    }
}

/// The release that the program installs: its own version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn options() -> Options {
    Options {
        hook: HOOK.into(),
        runtime: RUNTIME.into(),
        set_default: false,
        base_spec: None,
    }
}

/// The tree of a host before anything was installed, from runtime-config's
/// fixtures.
pub(crate) fn fixture(name: &str) -> PathBuf {
    fixtures().join(name).join("before")
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime-config/testdata")
}

/// The beginning of a program for this machine.
fn elf_header() -> Vec<u8> {
    let program = fs::read(env!("CARGO_BIN_EXE_boathook-init")).unwrap();
    program[..64].to_vec()
}

/// What a failed run printed.
pub(crate) fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a run that went well printed.
pub(crate) fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a shell line in a mount namespace of its own; `None`, with a word on
/// the reason, without the rights to.
pub(crate) fn with_mounts(line: &str) -> Option<Output> {
    if !nix::unistd::geteuid().is_root() {
        skip::report("an installation among mounts", "mounting needs root");
        return None;
    }
    let line = format!("set -e; mount --make-rprivate /; {line}");
    Some(
        Command::new("unshare")
            .args(["-m", "sh", "-c", &line])
            .output()
            .unwrap(),
    )
}

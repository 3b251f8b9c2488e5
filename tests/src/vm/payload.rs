//! The files that a test copies to a virtual machine: the release, and test programs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::captured::Captured;
use crate::{binaries, scratch};

/// The files for a machine, which are removed when the value is dropped.
#[derive(Debug)]
pub struct Payload(TempDir);

impl Payload {
    /// Collects the files: the release at `/root/boathook`, as in its archive; the programs of
    /// `tests/programs/vm` at `/root/programs`; and the DRA driver with its own tests, `dra-suite`,
    /// in `/root/dra`.
    pub fn new() -> Result<Self> {
        let payload = Self(scratch::directory("payload")?);
        let root = payload.0.path().join("tree/root");
        fs::create_dir_all(&root)?;
        let programs = binaries::program("boathook")?;
        let mut release = Command::new(binaries::source_tree().join("initcontainer/image-files"));
        release
            .arg(programs.parent().context("no directory of programs")?)
            .arg(root.join("boathook"));
        Captured::run(&mut release)?.success()?;
        let mut programs = Command::new("cp");
        programs
            .arg("--recursive")
            .arg(binaries::source_tree().join("tests/programs/vm"))
            .arg(root.join("programs"));
        Captured::run(&mut programs)?.success()?;
        let mut claims = Command::new("install");
        claims
            .args(["-D", "-t"])
            .arg(root.join("dra"))
            .arg(binaries::program("boathook-dra")?)
            .arg(binaries::program("dra-suite")?);
        Captured::run(&mut claims)?.success()?;
        let mut tar = Command::new("tar");
        tar.args(["--owner=0", "--group=0", "-cf"])
            .arg(payload.archive())
            .arg("-C")
            .arg(payload.0.path().join("tree"))
            .arg("root");
        Captured::run(&mut tar)?.success()?;
        Ok(payload)
    }

    /// Returns the path of the archive, which the machine gets as a disk.
    pub(super) fn archive(&self) -> PathBuf {
        self.0.path().join("payload.tar")
    }
}

//! The files that a test brings into the machine: the release, and programs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::captured::Captured;
use crate::{binaries, scratch};

/// Files for the machine. Removed when dropped.
#[derive(Debug)]
pub struct Payload(TempDir);

impl Payload {
    /// The release at `/root/boathook`, as its archive has it, the programs of
    /// `tests/programs/vm` at `/root/programs`, and in `/root/dra` the DRA driver with
    /// `dra-suite`, its own tests.
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

    /// As a disk of the machine.
    pub(super) fn archive(&self) -> PathBuf {
        self.0.path().join("payload.tar")
    }
}

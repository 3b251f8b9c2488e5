//! Finds the kernels of Debian's releases.

use std::path::PathBuf;
use std::process::Command;
use std::{fmt, fs};

use anyhow::{Context, Result};

use super::Architecture;
use crate::binaries;
use crate::captured::Captured;
use crate::mirror::Mirror;
use crate::rootfs::cached;

/// The names of kernels in tests, and the releases of Debian that have them.
const KERNELS: [(&str, &str); 4] = [
    ("5.10", "bullseye"),
    ("6.1", "bookworm"),
    ("6.12", "trixie"),
    ("newest", "forky"),
];

/// A kernel of one of Debian's releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    name: &'static str,
    release: &'static str,
    architecture: Architecture,
}

impl Kernel {
    /// Returns the kernel with this name: `5.10`, `6.1`, `6.12` or `newest`.
    pub fn named(wanted: &str, architecture: Architecture) -> Result<Self> {
        let mut known = KERNELS.into_iter();
        let found = known.find(|(name, _)| *name == wanted);
        let (name, release) = found.with_context(|| format!("no kernel {wanted}: {KERNELS:?}"))?;
        Ok(Self {
            name,
            release,
            architecture,
        })
    }

    /// Returns the kernel that every run of the tests boots, if it exists for this machine's
    /// architecture.
    pub fn of_every_run() -> Option<Self> {
        Self::named("6.1", Architecture::of_this_machine()?).ok()
    }

    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// Returns the reason why the kernel cannot be booted here, or `None` if it can. The kernel is
    /// fetched to find out.
    pub fn missing(&self) -> Option<String> {
        super::missing(self.architecture).or_else(|| {
            let failed = self.files().err();
            failed.map(|error| format!("{error:#}"))
        })
    }

    /// Returns the directory with the kernel's files, which `scripts/debian-kernel` creates.
    pub(super) fn files(&self) -> Result<PathBuf> {
        let script = binaries::source_tree().join("scripts/debian-kernel");
        let architecture = self.architecture.name();
        let name = format!("kernel-{}-{architecture}", self.name);
        cached(&name, std::slice::from_ref(&script), |tree| {
            let mut command = Command::new(&script);
            command
                .arg(self.release)
                .arg(Mirror::address_of_debian()?)
                .arg(architecture)
                .arg(tree.top());
            Captured::run(&mut command)?.success().map(drop)
        })
    }

    /// Returns the version of the kernel, such as `6.1.0-50-amd64`.
    pub fn version(&self) -> Result<String> {
        let version = fs::read_to_string(self.files()?.join("version"))?;
        Ok(version.trim().to_string())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

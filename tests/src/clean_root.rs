//! Root file systems of distributions with Docker and podman, as users install them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::mirror::{self, Mirror};
use crate::rootfs::cached;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// This machine's release of Debian.
    Debian,
    Ubuntu22,
    Ubuntu24,
}

/// The packages to install. They include packages that other ones require only by virtual names,
/// such as podman's network stack, because debootstrap does not resolve virtual packages.
const PACKAGES: &str = "docker.io,podman,conmon,runc,iptables,containernetworking-plugins";

impl Distribution {
    /// Returns the root file system of the distribution, which is built if it has not been built
    /// before. Nothing may be written to it. The error has the reason why it cannot be built.
    pub fn root(self) -> Result<PathBuf, String> {
        if let Some(reason) = mirror::missing() {
            return Err(reason);
        }
        self.find_or_build().map_err(|error| format!("{error:#}"))
    }

    fn find_or_build(self) -> Result<PathBuf> {
        match self {
            Self::Debian => {
                let release = [PathBuf::from("/etc/os-release")];
                let mirror = Mirror::of_this_machine()?;
                cached("clean-debian", &release, |tree| {
                    build(&mirror, PACKAGES, tree.top())
                })
            }
            Self::Ubuntu22 => {
                let mirror = Mirror::of_ubuntu("jammy");
                cached("clean-ubuntu-22.04", &[], |tree| {
                    build(&mirror, PACKAGES, tree.top())
                })
            }
            Self::Ubuntu24 => {
                let mirror = Mirror::of_ubuntu("noble");
                // In this release the package provides the library libglib2.0-0, which conmon
                // needs.
                let packages = format!("{PACKAGES},libglib2.0-0t64");
                cached("clean-ubuntu-24.04", &[], |tree| {
                    build(&mirror, &packages, tree.top())
                })
            }
        }
    }
}

fn build(mirror: &Mirror, packages: &str, directory: &Path) -> Result<()> {
    mirror.fetch(packages, directory)?;
    fs::remove_dir_all(directory.join("var/cache/apt/archives"))?;
    fs::write(directory.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    Ok(())
}

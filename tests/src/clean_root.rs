//! Root file systems of distributions as a user has them, with Docker and podman.

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

/// debootstrap does not resolve virtual packages, such as podman's network stack.
const PACKAGES: &str = "docker.io,podman,conmon,runc,iptables,containernetworking-plugins";

impl Distribution {
    /// Its root file system, to which nothing may be written; `Err` has the reason why
    /// it cannot be had. Made if it has not been made before.
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
                // This package provides conmon's libglib2.0-0 there.
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

//! The root file systems of hosts: small distributions with systemd and runtimes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::config::CONFIGURED;
use crate::mirror::{self, Mirror};
use crate::rootfs::cached;

/// The distribution that a host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// This machine's release of Debian, with runc, crun and containerd.
    OfThisMachine,
    /// Ubuntu 18.04, with runc. Its systemd is 237: before 240, a device in
    /// `DeviceAllow=` is whatever node is at its path.
    Ubuntu1804,
}

impl Distribution {
    /// Returns the reason why this machine cannot have the distribution, or `None` if it can. An
    /// old distribution is fetched to find out.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Self::OfThisMachine => mirror::missing(),
            Self::Ubuntu1804 => mirror::missing().or_else(|| {
                let failed = self.directory().err();
                failed.map(|error| format!("{error:#}"))
            }),
        }
    }

    /// Returns the root file system, which is built by debootstrap if it has not been built before.
    /// Nothing may be written to it.
    pub fn directory(self) -> Result<PathBuf> {
        match self {
            Self::OfThisMachine => {
                let release = ["/etc/os-release".into()];
                cached("systemd-host", &release, |tree| self.build(tree.top()))
            }
            Self::Ubuntu1804 => cached("ubuntu-18.04", &[], |tree| self.build(tree.top())),
        }
    }

    fn build(self, directory: &Path) -> Result<()> {
        let mirror = match self {
            Self::OfThisMachine => Mirror::of_this_machine()?,
            Self::Ubuntu1804 => Mirror::of_ubuntu_18_04(),
        };
        mirror.fetch(self.packages(), directory)?;
        if self == Self::Ubuntu1804 {
            // The runc of the release itself does not pass devices to systemd, so the updated one
            // is installed.
            mirror.add_updated("runc", directory)?;
            // These units write to the root file system, which is read-only, and fail. In later
            // versions they do not fail.
            for unit in ["systemd-tmpfiles-setup", "systemd-update-utmp"] {
                let masked = format!("etc/systemd/system/{unit}.service");
                symlink("/dev/null", directory.join(masked))?;
            }
        }
        for configured in CONFIGURED {
            fs::create_dir_all(directory.join(configured))?;
        }
        // Engines copy this file into pods.
        fs::write(directory.join("etc/hosts"), "127.0.0.1 localhost\n")?;
        Ok(())
    }

    /// Returns the packages that are installed in addition to the minimal system.
    fn packages(self) -> &'static str {
        match self {
            Self::OfThisMachine => "systemd,systemd-sysv,dbus,runc,crun,containerd",
            Self::Ubuntu1804 => "systemd,systemd-sysv,dbus",
        }
    }
}

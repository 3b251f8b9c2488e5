//! Root file systems with the drivers that vendors publish, as Debian packages them.
//!
//! Each one is built once by debootstrap and apt, and kept. The packages' own scripts create
//! Debian's links of alternatives and the loader's cache. This machine's sources of packages are
//! neither read nor changed, except that the address of its mirror is used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::captured::Captured;
use crate::fingerprint;
use crate::mirror::{self, Mirror};
use crate::rootfs::cached;

/// A release of Debian with packages that are installed in it.
#[derive(Clone, Copy, Debug)]
pub struct DriverTree {
    /// The release's name, such as `bookworm`.
    pub release: &'static str,
    /// A name for messages and for the cache.
    pub name: &'static str,
    /// The packages to install, with dependencies and without recommended packages.
    pub packages: &'static [&'static str],
}

impl DriverTree {
    /// Returns the reason why no tree can be made on this machine, or `None` if it can. A mirror
    /// that cannot be reached is an error of [`DriverTree::directory`].
    pub fn missing() -> Option<String> {
        mirror::missing()
    }

    /// Returns the directory of the tree. Nothing may be written to it.
    pub fn directory(&self) -> Result<PathBuf> {
        // Building a tree takes minutes, so a second test waits for the first instead of building
        // it again.
        static BUILDING: Mutex<()> = Mutex::new(());
        let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let packages = fingerprint::of_bytes(self.packages.join(" ").as_bytes());
        let name = format!("debian-{}-{}-{packages}", self.release, self.name);
        cached(&name, &[], |tree| self.build(tree.top()))
    }

    /// Returns the paths of the files that packages of this version have installed. A package's own
    /// revision follows the version after a hyphen.
    pub fn files_of_version(&self, version: &str) -> Result<Vec<PathBuf>> {
        let tree = self.directory()?;
        let mut query = Command::new("dpkg-query");
        let admindir = tree.join("var/lib/dpkg");
        query.arg("--admindir").arg(admindir).arg("--show");
        query.args(["--showformat", "${binary:Package} ${Version}\n"]);
        let packages = Captured::run(&mut query)?.success()?.stdout;
        let of_version = |line: &str| {
            let (package, found) = line.split_once(' ')?;
            let (found, _revision) = found.split_once('-')?;
            (found == version).then(|| package.to_string())
        };
        let mut files = Vec::new();
        for package in packages.lines().filter_map(of_version) {
            let info = tree.join("var/lib/dpkg/info");
            let plain = package.split(':').next().unwrap_or(&package);
            let lists = [&package, plain].map(|name| info.join(format!("{name}.list")));
            let list = lists.iter().find(|list| list.is_file());
            let list = list.with_context(|| format!("{package} has no list of files"))?;
            files.extend(fs::read_to_string(list)?.lines().map(PathBuf::from));
        }
        Ok(files)
    }

    fn build(&self, directory: &Path) -> Result<()> {
        let base = cached(&format!("debian-{}", self.release), &[], |tree| {
            self.fetch_base(tree.top())
        })?;
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--reflink=auto", "--no-target-directory"]);
        Captured::run(copy.arg(base).arg(directory))?.success()?;
        let install = ["install", "--yes", "--no-install-recommends"];
        let install = [&install[..], self.packages].concat();
        for arguments in [&["update"][..], &install, &["clean"]] {
            // The command runs in new namespaces, so that processes and mounts of a package's
            // scripts end with it.
            let mut command = Command::new("unshare");
            command.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]);
            command.arg(directory).arg("apt-get").args(arguments);
            command.env("LC_ALL", "C");
            command.env("DEBIAN_FRONTEND", "noninteractive");
            let ran = Captured::run(&mut command)?.success();
            ran.with_context(|| format!("cannot install packages of {}", self.release))?;
        }
        Ok(())
    }

    /// Builds the minimal system of the release, without the packages.
    fn fetch_base(&self, directory: &Path) -> Result<()> {
        let mirror = Mirror {
            release: self.release.to_string(),
            components: "main,contrib,non-free,non-free-firmware",
            script: Some("/usr/share/debootstrap/scripts/sid"),
            ..Mirror::of_this_machine()?
        };
        mirror.fetch("adduser", directory)?;
        // Packages ask this program before they start a service (invoke-rc.d(8)).
        let policy = directory.join("usr/sbin/policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 101\n")?;
        fs::set_permissions(&policy, PermissionsExt::from_mode(0o755))?;
        Ok(())
    }
}

/// Adds all files of a tree to the directory `target`, by hard links if that is possible. The files
/// may be replaced there, but not written to.
pub fn add_links(tree: &Path, target: &Path) -> Result<()> {
    let copy = |how: &str| {
        let mut command = Command::new("cp");
        command.args(["--archive", "--force", "--no-target-directory", how]);
        Captured::run(command.arg(tree).arg(target))?.success()
    };
    copy("--link").or_else(|_| copy("--reflink=auto"))?;
    Ok(())
}

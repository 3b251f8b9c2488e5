//! Builds the root file system of a machine: a Debian with systemd, engines and tools, as users
//! install them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::once::{run_init, write_init};
use super::{Architecture, Kernel, SecurityModule};
use crate::captured::Captured;
use crate::fingerprint;
use crate::rootfs::cached;

/// The time limit for installing the packages of another architecture in an emulated machine.
const INSTALLATION: Duration = Duration::from_secs(3600);

/// The units that are masked, because no test needs them and they take time.
const MASKED: [&str; 6] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "systemd-timesyncd.service",
    "getty@tty1.service",
];

/// The size of the image, which is larger than the packages need.
const SIZE: &str = "4G";

/// Returns the path of the image with the root file system, to which nothing may be written.
pub(super) fn root(architecture: Architecture, security_module: SecurityModule) -> Result<PathBuf> {
    let machine = [PathBuf::from("/etc/os-release")];
    let is_own = Architecture::of_this_machine() == Some(architecture);
    // The name contains a hash of the packages and commands, so that other ones make another image.
    let (packages, finish) = (security_module.packages(), security_module.finish());
    let hash = fingerprint::of_parts([packages.as_bytes(), finish.as_bytes()]);
    let root_name = security_module.root_name();
    let name = format!("{root_name}-{}-{hash}", architecture.name());
    let directory = cached(&name, &machine, |tree| {
        let (files, file) = (tree.top().join("files"), tree.top().join("root.ext4"));
        let mirror = security_module.mirror()?;
        if is_own {
            mirror.fetch(&packages, &files)?;
            configure(&files)?;
            let mut chroot = Command::new("chroot");
            chroot.arg(&files).args(["/bin/sh", "-euc", &finish]);
            Captured::run(&mut chroot)?.success()?;
        } else {
            mirror.unpack(&packages, architecture.name(), &files)?;
            configure(&files)?;
            let steps = format!("/debootstrap/debootstrap --second-stage\n{finish}");
            write_init(&files, &steps)?;
        }
        image(&files, &file, SIZE)?;
        fs::remove_dir_all(&files).context("cannot remove what the image was made of")?;
        if !is_own {
            let kernel = Kernel::named("6.1", architecture)?;
            // When the packages are installed, systemd's own `init` replaces this one.
            run_init(&kernel, &file, INSTALLATION)?;
        }
        Ok(())
    })?;
    Ok(directory.join("root.ext4"))
}

/// Creates an image of ext4 with these files. Unused space is a hole in the file.
pub(super) fn image(files: &Path, file: &Path, size: &str) -> Result<()> {
    let mut command = Command::new("/sbin/mkfs.ext4");
    command.args(["-q", "-d"]).arg(files).arg(file).arg(size);
    Captured::run(&mut command)?.success().map(drop)
}

/// Writes the files that an installer would write: names, users and networks.
fn configure(root: &Path) -> Result<()> {
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    fs::write(root.join("etc/hostname"), "vm\n")?;
    fs::write(root.join("etc/fstab"), "")?;
    fs::write(root.join("etc/subuid"), "containers:100000:65536\n")?;
    fs::write(root.join("etc/subgid"), "containers:100000:65536\n")?;
    fs::create_dir_all(root.join("usr/lib/modules"))?;
    let units = root.join("etc/systemd/system");
    fs::create_dir_all(&units)?;
    for unit in MASKED {
        symlink("/dev/null", units.join(unit))?;
    }
    Ok(())
}

//! The machine's root: a Debian with systemd, engines and tools, as users install them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::once::{run_init, write_init};
use super::{Architecture, Kernel};
use crate::captured::Captured;
use crate::fingerprint;
use crate::mirror::Mirror;
use crate::rootfs::cached;

/// systemd, the agent, engines, and what uses devices in containers.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,udev,kmod,qemu-guest-agent,runc,crun,\
                        containerd,docker.io,podman,conmon,containernetworking-plugins,netavark,\
                        aardvark-dns,iproute2,iptables,apparmor,uidmap,slirp4netns,fuse-overlayfs,\
                        fuse3,rdma-core,ibverbs-utils,ibverbs-providers,rdmacm-utils,usbutils,\
                        pciutils,ca-certificates,busybox-static";

/// The time that the packages of another architecture may take to install themselves.
const INSTALLATION: Duration = Duration::from_secs(3600);

/// Services that no test needs, and the time that they take.
const MASKED: [&str; 6] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "systemd-timesyncd.service",
    "getty@tty1.service",
];

/// More than the packages need.
const SIZE: &str = "4G";

/// What is left to do when the packages are installed. Docker starts when somebody calls it
/// (docker.socket).
const FINISH: &str = "rm /etc/systemd/system/multi-user.target.wants/docker.service
                      rm -rf /var/cache/apt/archives /var/lib/apt/lists";

/// The image of the root file system, to which nothing may be written.
pub(super) fn root(architecture: Architecture) -> Result<PathBuf> {
    let machine = [PathBuf::from("/etc/os-release")];
    let is_own = Architecture::of_this_machine() == Some(architecture);
    // Other packages make another root.
    let packages = fingerprint::of_parts([PACKAGES.as_bytes(), FINISH.as_bytes()]);
    let name = format!("vm-{}-{packages}", architecture.name());
    let directory = cached(&name, &machine, |tree| {
        let (files, file) = (tree.top().join("files"), tree.top().join("root.ext4"));
        let mirror = Mirror::of_this_machine()?;
        if is_own {
            mirror.fetch(PACKAGES, &files)?;
            configure(&files)?;
            let mut finish = Command::new("chroot");
            finish.arg(&files).args(["/bin/sh", "-euc", FINISH]);
            Captured::run(&mut finish)?.success()?;
        } else {
            mirror.unpack(PACKAGES, architecture.name(), &files)?;
            configure(&files)?;
            let steps = format!("/debootstrap/debootstrap --second-stage\n{FINISH}");
            write_init(&files, &steps)?;
        }
        image(&files, &file, SIZE)?;
        fs::remove_dir_all(&files).context("cannot remove what the image was made of")?;
        if !is_own {
            let kernel = Kernel::named("6.1", architecture)?;
            // systemd's `init` takes the place of this one.
            run_init(&kernel, &file, INSTALLATION)?;
        }
        Ok(())
    })?;
    Ok(directory.join("root.ext4"))
}

/// Makes an image of ext4 with these files; what is not used is a hole in the file.
pub(super) fn image(files: &Path, file: &Path, size: &str) -> Result<()> {
    let mut command = Command::new("/sbin/mkfs.ext4");
    command.args(["-q", "-d"]).arg(files).arg(file).arg(size);
    Captured::run(&mut command)?.success().map(drop)
}

/// Sets the values that an installer would ask for.
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

//! The machine's root: a Debian with systemd, engines and tools, as users install them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::captured::Captured;
use crate::fingerprint;
use crate::mirror::Mirror;
use crate::rootfs::cached;

/// systemd, the agent, engines, and what uses devices in containers.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,udev,kmod,qemu-guest-agent,runc,crun,\
                        containerd,docker.io,podman,conmon,containernetworking-plugins,netavark,\
                        aardvark-dns,iproute2,iptables,apparmor,uidmap,slirp4netns,fuse-overlayfs,\
                        fuse3,rdma-core,ibverbs-utils,ibverbs-providers,rdmacm-utils,usbutils,\
                        pciutils,ca-certificates";

/// Services that no test needs, and the time that they take.
const MASKED: [&str; 6] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "systemd-timesyncd.service",
    "getty@tty1.service",
];

/// More than the packages need; what is not used is a hole in the file.
const SIZE: &str = "4G";

/// The image of the root file system, to which nothing may be written.
pub(super) fn root() -> Result<PathBuf> {
    let machine = [PathBuf::from("/etc/os-release")];
    // Other packages make another root.
    let packages = fingerprint::of_parts([PACKAGES.as_bytes()]);
    let directory = cached(&format!("vm-{packages}"), &machine, |tree| {
        let files = tree.top().join("files");
        Mirror::of_this_machine()?.fetch(PACKAGES, &files)?;
        configure(&files)?;
        let mut image = Command::new("/sbin/mkfs.ext4");
        image
            .args(["-q", "-d"])
            .arg(&files)
            .arg(tree.top().join("root.ext4"))
            .arg(SIZE);
        Captured::run(&mut image)?.success()?;
        fs::remove_dir_all(&files).context("cannot remove what the image was made of")
    })?;
    Ok(directory.join("root.ext4"))
}

/// What an installer would ask.
fn configure(root: &Path) -> Result<()> {
    fs::remove_dir_all(root.join("var/cache/apt/archives"))?;
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    fs::write(root.join("etc/hostname"), "vm\n")?;
    fs::write(root.join("etc/fstab"), "")?;
    fs::write(root.join("etc/subuid"), "containers:100000:65536\n")?;
    fs::write(root.join("etc/subgid"), "containers:100000:65536\n")?;
    fs::create_dir_all(root.join("usr/lib/modules"))?;
    for unit in MASKED {
        symlink("/dev/null", root.join("etc/systemd/system").join(unit))?;
    }
    // Docker starts when somebody calls it (docker.socket).
    let docker = root.join("etc/systemd/system/multi-user.target.wants/docker.service");
    fs::remove_file(docker).context("docker.service is not enabled")
}

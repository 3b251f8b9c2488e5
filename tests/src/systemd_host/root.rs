//! The root file system of the host: Debian with systemd and two runtimes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::mirror::Mirror;
use crate::captured::Captured;
use crate::rootfs::cached;

/// What is in it beside the minimal system.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,runc,crun";
/// The program that makes it (Debian's package debootstrap).
const DEBOOTSTRAP: &str = "/usr/sbin/debootstrap";

/// Why it cannot be made on this machine, if it cannot.
pub(super) fn missing() -> Option<String> {
    [(DEBOOTSTRAP, "debootstrap"), ("/usr/bin/apt-get", "apt")]
        .into_iter()
        .find(|(program, _)| !Path::new(program).is_file())
        .map(|(program, package)| format!("needs {program} (package {package})"))
}

/// The tree, made by debootstrap from this machine's mirror if it has not been
/// made before. Nothing may be written to it.
pub(super) fn directory() -> Result<PathBuf> {
    // It takes long: whoever comes second waits, rather than doing it again.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let inputs = [Path::new("/etc/os-release").to_path_buf()];
    cached("systemd-host", &inputs, |tree| build(tree.top()))
}

fn build(directory: &Path) -> Result<()> {
    let mirror = Mirror::of_this_machine()?;
    let mut command = Command::new(DEBOOTSTRAP);
    command
        .args(["--variant=minbase", "--include", PACKAGES])
        .arg(&mirror.release)
        .arg(directory)
        .arg(&mirror.address)
        .env("LC_ALL", "C");
    Captured::run(&mut command)?
        .success()
        .context("cannot make a Debian root file system")?;
    Ok(())
}

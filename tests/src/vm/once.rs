//! Runs a machine that executes the lines of a shell script and turns itself off.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Kernel, SecurityModule, console, disks, end_of, qemu};
use crate::captured::Captured;
use crate::scratch;

/// The script that is process 1. The steps are another script, so that the first step that fails
/// ends them.
const INIT: &str = "#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
/bin/sh -eu /steps && echo all steps done
sync
exec busybox poweroff -f
";
const LAST: &str = "all steps done";

/// Boots a kernel with the files of a directory as its root file system, runs the lines of a shell,
/// and returns the output on the console.
pub fn run_once(kernel: &Kernel, files: &Path, steps: &str, limit: Duration) -> Result<String> {
    let directory = scratch::directory("vm")?;
    let root = directory.path().join("root.ext4");
    write_init(files, steps)?;
    disks::image(files, &root, "256M")?;
    run_init(kernel, &root, limit)
}

/// Writes the script that is process 1. The root file system must have a shell and, after the
/// steps, busybox.
pub(super) fn write_init(files: &Path, steps: &str) -> Result<()> {
    let init = files.join("sbin/init");
    // The file may be a link to busybox, which must not be followed, or may not exist.
    let _ = fs::remove_file(&init);
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, Permissions::from_mode(0o755))?;
    fs::write(files.join("steps"), steps)?;
    Ok(())
}

/// Boots a kernel with such a root file system in an image, which keeps what is written.
pub(super) fn run_init(kernel: &Kernel, root: &Path, limit: Duration) -> Result<String> {
    let directory = scratch::directory("vm")?;
    let at = directory.path();
    let qemu = qemu(kernel, SecurityModule::AppArmor, root, "snapshot=off", at)?;
    // The machine also ends when the kernel panics, and soon after the tests end. The time limit is
    // needed because two emulated processors have been seen to wait for each other without end.
    let mut command = Command::new("timeout");
    command
        .args(["--signal=KILL", &limit.as_secs().to_string()])
        .arg(qemu.get_program())
        .args(qemu.get_args())
        .args(["-no-reboot", "-smp", "1"])
        .env("TMPDIR", directory.path());
    let ended = Captured::run(&mut command)?;
    let console = console(directory.path());
    if !console.lines().any(|line| line == LAST) {
        bail!(
            "the machine did not do all steps ({}, limit {limit:?}): {}\n\
             its console ends with:\n{}",
            ended.status,
            ended.stderr,
            end_of(&console)
        );
    }
    Ok(console)
}

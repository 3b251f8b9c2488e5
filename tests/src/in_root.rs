//! Runs programs of a release with a host's directory as their root. `boathook facts` needs that,
//! because it runs other programs only in its own root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::binaries;
use crate::captured::Captured;

/// The script mounts a second /proc beside that of the host. The program finds itself and the time
/// since the boot there.
const SCRIPT: &str = r#"
    mount -t proc proc "$1/.proc"
    exec chroot "$@"
"#;

/// Installs programs and a class in the directory of a host, with the files that the programs need
/// there. Requires root.
///
/// # Errors
///
/// Returns an error if a file cannot be copied.
pub fn install(root: &Path, programs: &[&str], class: &Path) -> Result<()> {
    for directory in [".proc", "proc", "dev", "etc/boathook/classes.d"] {
        fs::create_dir_all(root.join(directory))?;
    }
    for name in ["self", "uptime"] {
        symlink(
            Path::new("../.proc").join(name),
            root.join("proc").join(name),
        )?;
    }
    let null = root.join("dev/null");
    if !null.exists() {
        mknod(
            &null,
            SFlag::S_IFCHR,
            Mode::from_bits_truncate(0o666),
            makedev(1, 3),
        )?;
    }
    for name in programs {
        binaries::copy(&binaries::program(name)?, &root.join(name))?;
    }
    let name = class.file_name().unwrap_or_default();
    fs::copy(class, root.join("etc/boathook/classes.d").join(name))?;
    Ok(())
}

/// Runs a program that is installed in the directory of a host. Requires root.
///
/// # Errors
///
/// Returns an error if the program cannot be started.
pub fn run(root: &Path, command: &[&str]) -> Result<Captured> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-euc", SCRIPT, "sh"]);
    Captured::run(unshare.arg(root).args(command))
}

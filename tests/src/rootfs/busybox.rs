//! A root file system that has only busybox.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::tree::Tree;
use crate::captured::Captured;

/// The statically linked busybox of the host (Debian package busybox-static).
pub const BUSYBOX: &str = "/bin/busybox";

/// Adds busybox to `tree`, a hard link to it for each applet, and the directories and files that
/// every image has.
pub(super) fn build(tree: &Tree) -> Result<()> {
    tree.directories(&[
        "bin", "dev", "etc", "proc", "root", "sbin", "sys", "tmp", "usr/bin", "usr/lib", "usr/sbin",
    ])?;
    tree.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")?;
    tree.write("/etc/group", "root:x:0:\n")?;
    tree.copy_file(Path::new(BUSYBOX), "/bin/busybox")?;

    let applets = Captured::run(Command::new(BUSYBOX).arg("--list-full"))?.success()?;
    for applet in applets
        .stdout
        .lines()
        .filter(|applet| *applet != "bin/busybox")
    {
        // Hard links as `busybox --install` makes them. Symbolic links would take one inode each in
        // every copy of the tree.
        tree.hard_link(applet, "/bin/busybox")?;
    }
    Ok(())
}

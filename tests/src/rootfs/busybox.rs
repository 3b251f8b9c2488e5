//! A root file system of busybox alone.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::tree::Tree;
use crate::captured::Captured;

/// The statically linked busybox (Debian's package busybox-static).
pub const BUSYBOX: &str = "/bin/busybox";

/// Fills `tree` with busybox, a name of it for each applet, and the directories and
/// files that every image has.
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
        // As by `busybox --install`: a copy of the tree has no inode for each.
        tree.hard_link(applet, "/bin/busybox")?;
    }
    Ok(())
}

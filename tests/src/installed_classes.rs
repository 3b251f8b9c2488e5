//! Installs the shipped classes as a release does, with the class index.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::captured::Captured;

/// Installs the shipped classes below `directory`, and returns the directory with the class files.
pub fn install(directory: &Path) -> Result<PathBuf> {
    let (root, classes) = (directory.join("installed"), directory.join("shipped"));
    for path in [root.join("opt"), root.join("etc"), classes.clone()] {
        fs::create_dir_all(path)?;
    }
    // The installer refuses classes that others can change, as those of a source tree may be.
    for entry in fs::read_dir(binaries::source_tree().join("device-class/classes"))? {
        let entry = entry?;
        let copy = classes.join(entry.file_name());
        fs::copy(entry.path(), &copy)?;
        fs::set_permissions(copy, Permissions::from_mode(0o644))?;
    }
    let installer = binaries::program("boathook-init")?;
    let programs = installer
        .parent()
        .context("the installer has no directory")?;
    let mut install = Command::new(&installer);
    install.arg("--host-root").arg(&root);
    install.args(["install", "--engine", "none", "--source"]);
    install.arg(programs).arg("--classes").arg(&classes);
    Captured::run(&mut install)?.success()?;
    let current = root.join("opt/boathook/current");
    let version = fs::read_link(&current).context("the installer made no link `current`")?;
    Ok(current.with_file_name(version).join("classes.d"))
}

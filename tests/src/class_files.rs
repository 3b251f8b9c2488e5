//! Copies or installs shipped class files where programs read them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::captured::Captured;

/// Installs the shipped class files below `directory` by the installer, which also writes their
/// index. Returns the directory with the class files.
pub fn install(directory: &Path) -> Result<PathBuf> {
    let (root, classes) = (directory.join("installed"), directory.join("shipped"));
    for path in [root.join("opt"), root.join("etc"), classes.clone()] {
        fs::create_dir_all(path)?;
    }
    copy_all(&classes)?;
    let installer = binaries::program("boathook-init")?;
    let programs = installer.parent();
    let programs = programs.context("the installer has no directory")?;
    let mut install = Command::new(&installer);
    install.arg("--host-root").arg(&root);
    install.args(["install", "--engine", "none", "--source"]);
    install.arg(programs).arg("--classes").arg(&classes);
    Captured::run(&mut install)?.success()?;
    let current = root.join("opt/boathook/current");
    let version = fs::read_link(&current).context("the installer made no link `current`")?;
    Ok(current.with_file_name(version).join("classes.d"))
}

/// Copies all shipped class files to a directory, which exists, as an installation has them.
pub fn copy_all(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(binaries::source_tree().join("device-class/classes"))? {
        let entry = entry?;
        copy(&entry.path(), &directory.join(entry.file_name()))?;
    }
    Ok(())
}

/// Copies a class file. The copy belongs to this user and has the mode 0644. The programs refuse
/// the file itself in a clone that another user owns, or that was made with the umask 002.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    fs::set_permissions(to, Permissions::from_mode(0o644))
        .with_context(|| format!("cannot set the mode of {}", to.display()))
}

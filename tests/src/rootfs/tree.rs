//! A directory tree that is being filled.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::captured::Captured;

/// A tree under construction. Paths given to its methods begin with `/` and are
/// below its top. Nothing in it is hostile before a container runs.
pub(crate) struct Tree {
    top: PathBuf,
}

impl Tree {
    /// The tree at the directory `top`.
    pub(crate) fn new(top: &Path) -> Self {
        Self {
            top: top.to_path_buf(),
        }
    }

    /// A new tree at `top` with all that `source` has, links and owners kept.
    pub(crate) fn copy_of(source: &Path, top: &Path) -> Result<Self> {
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--reflink=auto", "--no-target-directory"])
            .arg(source)
            .arg(top);
        Captured::run(&mut copy)?.success()?;
        Ok(Self::new(top))
    }

    /// The tree's own directory.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// Returns the path on the host of `path` in the root file system.
    pub(crate) fn on_host(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.top.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Makes directories and those above them.
    pub(crate) fn directories(&self, paths: &[&str]) -> Result<()> {
        for path in paths {
            let directory = self.on_host(path);
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        Ok(())
    }

    pub(crate) fn write(&self, path: impl AsRef<Path>, text: &str) -> Result<()> {
        let file = self.with_parent(path.as_ref())?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Copies one of the host's files, following links.
    pub(crate) fn copy_file(&self, source: &Path, path: impl AsRef<Path>) -> Result<()> {
        let file = self.with_parent(path.as_ref())?;
        binaries::copy(source, &file)
            .with_context(|| format!("cannot copy {} to {}", source.display(), file.display()))
    }

    /// Makes the symbolic link `path`, leading to `to`.
    pub(crate) fn link(&self, path: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let link = self.with_parent(path.as_ref())?;
        symlink(to, &link).with_context(|| format!("cannot make the link {}", link.display()))
    }

    /// Gives a file of the tree another name.
    pub(crate) fn hard_link(&self, path: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let name = self.with_parent(path.as_ref())?;
        fs::hard_link(self.on_host(to), &name)
            .with_context(|| format!("cannot make the name {}", name.display()))
    }

    fn with_parent(&self, path: &Path) -> Result<PathBuf> {
        let file = self.on_host(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
        }
        Ok(file)
    }
}

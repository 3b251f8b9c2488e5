//! A directory tree under construction, the later root file system of a container.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries;
use crate::captured::Captured;

/// A directory tree under construction. The paths given to its methods begin with `/` and are
/// relative to `top`. They are resolved without protection from hostile links, because no container
/// has run in the tree yet.
pub(crate) struct Tree {
    top: PathBuf,
}

impl Tree {
    /// Returns the tree whose root is the directory `top`.
    pub(crate) fn new(top: &Path) -> Self {
        Self {
            top: top.to_path_buf(),
        }
    }

    /// Copies the tree `source` to `top`, with its links and owners.
    pub(crate) fn copy_of(source: &Path, top: &Path) -> Result<Self> {
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--reflink=auto", "--no-target-directory"])
            .arg(source)
            .arg(top);
        Captured::run(&mut copy)?.success()?;
        Ok(Self::new(top))
    }

    /// Returns the directory on the host that is the root of the tree.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// Returns the host path of `path`, which is a path in the root file system.
    pub(crate) fn on_host(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.top.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Creates directories and their missing parents.
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

    /// Copies the host file `source` to `path`, following symbolic links.
    pub(crate) fn copy_file(&self, source: &Path, path: impl AsRef<Path>) -> Result<()> {
        let file = self.with_parent(path.as_ref())?;
        binaries::copy(source, &file)
            .with_context(|| format!("cannot copy {} to {}", source.display(), file.display()))
    }

    /// Creates the symbolic link `path` with the target `to`.
    pub(crate) fn link(&self, path: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let link = self.with_parent(path.as_ref())?;
        symlink(to, &link).with_context(|| format!("cannot make the link {}", link.display()))
    }

    /// Creates `path` as a hard link to the file `to` of the tree.
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

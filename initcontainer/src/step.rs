//! The steps of an installation. Each is done or not done, and can be taken
//! back; after any of them the host is usable as it is.

use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::fcntl::{RenameFlags, renameat2};
use runtime_config::{Change, Error as HostError, HostRoot};

use crate::error::Error;
use crate::layout::{discarded, unfinished};
use crate::payload::Payload;
use crate::tree;

/// One step.
#[derive(Debug, Clone)]
pub enum Step {
    /// Make a directory that appears complete: built under another name
    /// beside it, then renamed.
    MakeTree {
        /// The directory.
        path: PathBuf,
        /// The one file in it, and its text.
        file: (PathBuf, String),
    },
    /// Put a version's files together under a name that nothing uses.
    Stage {
        /// The files.
        payload: Payload,
        /// The directory to make.
        to: PathBuf,
    },
    /// Give a complete directory its name; if that is taken, the two change
    /// places.
    Publish {
        /// The complete directory.
        from: PathBuf,
        /// Its name.
        to: PathBuf,
        /// Whether the name is taken.
        exchange: bool,
    },
    /// Point a link elsewhere.
    Point {
        /// The link.
        link: PathBuf,
        /// Where it points now; `None`: it does not exist.
        before: Option<PathBuf>,
        /// Where it shall point; `None`: it shall not exist.
        after: Option<PathBuf>,
    },
    /// A file or directory of the host or of an engine.
    Change(Change),
    /// Remove a directory and all in it: renamed away, then removed. Not taken
    /// back, so it comes last.
    Discard {
        /// The directory.
        path: PathBuf,
    },
}

/// Does the steps in order, and calls `after` after each. At the first failure
/// those before are taken back.
///
/// # Errors
/// What failed, and what failed while taking back, if anything did.
pub fn run(
    host: &HostRoot,
    steps: &[Step],
    mut after: impl FnMut(&Step) -> Result<(), Error>,
) -> Result<(), Error> {
    for (index, step) in steps.iter().enumerate() {
        let (result, done) = match step.apply(host) {
            Ok(()) => (after(step), index + 1),
            Err(e) => (Err(e), index),
        };
        let Err(first) = result else {
            continue;
        };
        for step in steps[..done].iter().rev() {
            if let Err(second) = step.undo(host) {
                let (first, second) = (Box::new(first), Box::new(second));
                return Err(Error::Rollback { first, second });
            }
        }
        return Err(first);
    }
    Ok(())
}

impl Step {
    /// What the step makes, changes or removes.
    pub fn path(&self) -> &Path {
        match self {
            Self::MakeTree { path, .. } | Self::Discard { path } => path,
            Self::Stage { to, .. } | Self::Publish { to, .. } => to,
            Self::Point { link, .. } => link,
            Self::Change(change) => change.path(),
        }
    }

    fn apply(&self, host: &HostRoot) -> Result<(), Error> {
        match self {
            Self::MakeTree { path, file } => make_tree(host, path, file),
            Self::Stage { payload, to } => {
                let to = locate(host, to)?;
                tree::remove(&to)?;
                let copied = tree::copy_payload(payload, &to);
                if copied.is_err() {
                    // A full disk is to be as it was.
                    tree::remove(&to)?;
                }
                copied
            }
            Self::Publish { from, to, exchange } => {
                let flags = if *exchange {
                    RenameFlags::RENAME_EXCHANGE
                } else {
                    RenameFlags::RENAME_NOREPLACE
                };
                rename(&locate(host, from)?, &locate(host, to)?, flags)
            }
            Self::Point { link, after, .. } => point(host, link, after.as_deref()),
            Self::Change(change) => Ok(change.apply(host)?),
            Self::Discard { path } => discard(host, path),
        }
    }

    fn undo(&self, host: &HostRoot) -> Result<(), Error> {
        match self {
            Self::MakeTree { path, .. } => discard(host, path),
            Self::Stage { to, .. } => tree::remove(&locate(host, to)?),
            Self::Publish { from, to, exchange } => Self::Publish {
                from: to.clone(),
                to: from.clone(),
                exchange: *exchange,
            }
            .apply(host),
            Self::Point { link, before, .. } => point(host, link, before.as_deref()),
            Self::Change(change) => Ok(change.inverse().apply(host)?),
            Self::Discard { .. } => Ok(()),
        }
    }
}

/// What the step does, as a diff where it is about text.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeTree { path, file } => {
                writeln!(f, "mkdir {} (with {})", path.display(), file.0.display())
            }
            Self::Stage { payload, to } => {
                writeln!(
                    f,
                    "copy {} files to {}",
                    payload.files().count(),
                    to.display()
                )
            }
            Self::Publish { from, to, .. } => {
                writeln!(f, "rename {} to {}", from.display(), to.display())
            }
            Self::Point {
                link,
                after: Some(to),
                ..
            } => {
                writeln!(f, "link {} -> {}", link.display(), to.display())
            }
            Self::Point {
                link, after: None, ..
            } => writeln!(f, "unlink {}", link.display()),
            Self::Change(change) => change.fmt(f),
            Self::Discard { path } => writeln!(f, "remove {}", path.display()),
        }
    }
}

/// Where a host's path is for this process: the directories above it are
/// resolved, but a link is taken as the link that it is.
fn locate(host: &HostRoot, path: &Path) -> Result<PathBuf, Error> {
    match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) => Ok(host.locate(dir)?.join(name)),
        _ => Ok(host.locate(path)?),
    }
}

fn make_tree(host: &HostRoot, path: &Path, (file, text): &(PathBuf, String)) -> Result<(), Error> {
    let (at, new) = (locate(host, path)?, locate(host, &unfinished(path))?);
    tree::remove(&new)?;
    let inside = new.join(file.strip_prefix(path).unwrap_or(file));
    tree::write_new(&new, &inside, text)?;
    rename(&new, &at, RenameFlags::RENAME_NOREPLACE)
}

fn discard(host: &HostRoot, path: &Path) -> Result<(), Error> {
    let (at, old) = (locate(host, path)?, locate(host, &discarded(path))?);
    tree::remove(&old)?;
    rename(&at, &old, RenameFlags::RENAME_NOREPLACE)?;
    tree::remove(&old)
}

fn point(host: &HostRoot, link: &Path, to: Option<&Path>) -> Result<(), Error> {
    let at = locate(host, link)?;
    let dir = at.parent().unwrap_or(&at);
    let Some(to) = to else {
        fs::remove_file(&at).map_err(HostError::io("remove", &at))?;
        return tree::sync(dir);
    };
    let new = unfinished(&at);
    tree::remove(&new)?;
    symlink(to, &new).map_err(HostError::io("link", &new))?;
    fs::rename(&new, &at).map_err(HostError::io("link", &at))?;
    tree::sync(dir)
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Error> {
    renameat2(nix::fcntl::AT_FDCWD, from, nix::fcntl::AT_FDCWD, to, flags)
        .map_err(|errno| HostError::io("rename", from)(errno.into()))?;
    tree::sync(to.parent().unwrap_or(to))
}

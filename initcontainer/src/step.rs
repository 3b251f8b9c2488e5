//! The steps of an installation. A step is either carried out completely or not at all, and can
//! be undone. The host is usable after each step.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use injection_plan::cdi::FILE_PREFIX;
use nix::fcntl::RenameFlags;
use runtime_config::{Change, HostRoot, Place};

use crate::layout::{
    CONFIG, ROOT, SHARED_LINKS, STATE, UNITS, discarded_name, is_leftover, unfinished_name,
};
use crate::payload::Payload;
use crate::tree;

#[derive(Debug, Clone)]
pub enum Step {
    /// Make a directory with one file. The directory is made under a temporary name and renamed,
    /// so that nobody sees it incomplete.
    MakeTree {
        path: PathBuf,
        /// The path of the file in the directory, and the text of the file.
        file: (PathBuf, String),
    },
    /// Copy the files of a version into a directory with a temporary name.
    Stage { payload: Payload, to: PathBuf },
    /// Rename a complete directory to its final name. If the name is taken, the two directories
    /// are exchanged.
    Publish {
        from: PathBuf,
        to: PathBuf,
        /// Whether the name is taken.
        exchange: bool,
    },
    Point {
        link: PathBuf,
        /// The present target. `None` means that the link does not exist.
        before: Option<PathBuf>,
        /// The new target. `None` means that the link is removed.
        after: Option<PathBuf>,
    },
    /// Change a file or directory of the host or of an engine.
    Change(Change),
    /// Remove a directory with its content. The directory is renamed first and then removed. The
    /// step cannot be undone, so it comes last.
    Discard { path: PathBuf },
}

/// Carries out the steps in order, and calls `after` after each step. If a step fails, the
/// earlier steps are undone.
pub fn run(
    host: &HostRoot,
    steps: &[Step],
    mut after: impl FnMut(&Step) -> Result<()>,
) -> Result<()> {
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
                return Err(anyhow!(
                    "{first:#}; and undoing the earlier steps failed too: {second:#}"
                ));
            }
        }
        return Err(first);
    }
    Ok(())
}

/// Returns a line with the number of links to manual pages and completions that the steps make
/// or remove, or `None` without such links.
pub fn shared_links(steps: &[Step]) -> Option<String> {
    match steps.iter().filter(|step| step.is_shared_link()).count() {
        0 => None,
        count => Some(format!(
            "{count} links to manual pages and completions below {SHARED_LINKS}"
        )),
    }
}

impl Step {
    /// Returns the path that the step makes, changes or removes.
    pub fn path(&self) -> &Path {
        match self {
            Self::MakeTree { path, .. } | Self::Discard { path } => path,
            Self::Stage { to, .. } | Self::Publish { to, .. } => to,
            Self::Point { link, .. } => link,
            Self::Change(change) => change.path(),
        }
    }

    /// Returns whether the step makes or removes a link to a manual page or completions.
    fn is_shared_link(&self) -> bool {
        matches!(self, Self::Point { link, .. } if link.starts_with(SHARED_LINKS))
    }

    fn apply(&self, host: &HostRoot) -> Result<()> {
        match self {
            Self::MakeTree { path, file } => make_tree(host, path, file),
            Self::Stage { payload, to } => {
                let to = host.entry(to)?;
                to.remove_all()?;
                or_remove(&to, tree::copy_payload(payload, &to))
            }
            Self::Publish { from, to, exchange } => publish_tree(host, from, to, *exchange),
            Self::Point { link, after, .. } => set_link(host, link, after.as_deref()),
            Self::Change(change) => Ok(change.apply(host)?),
            Self::Discard { path } => discard_tree(host, path),
        }
    }

    fn undo(&self, host: &HostRoot) -> Result<()> {
        match self {
            Self::MakeTree { path, .. } => discard_tree(host, path),
            Self::Stage { to, .. } => Ok(host.entry(to)?.remove_all()?),
            Self::Publish { from, to, exchange } => publish_tree(host, to, from, *exchange),
            Self::Point { link, before, .. } => set_link(host, link, before.as_deref()),
            Self::Change(change) => Ok(change.undo(host)?),
            Self::Discard { .. } => Ok(()),
        }
    }
}

/// Describes the step for an operator. A change of an engine's file is shown as a diff. The
/// alternate form (`{:#}`) also shows each copied file, and Boathook's own files as diffs.
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
                )?;
                let shown = if f.alternate() { usize::MAX } else { 0 };
                let mut files = payload.files().take(shown);
                files.try_for_each(|file| writeln!(f, "  {}/{}", file.dir, file.name))
            }
            Self::Publish { from, to, .. } => {
                writeln!(f, "rename {} to {}", from.display(), to.display())
            }
            // The many links to manual pages and completions are counted and not listed.
            Self::Point { .. } if self.is_shared_link() && !f.alternate() => Ok(()),
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
            // The full text of Boathook's own files does not help an operator.
            Self::Change(Change::Write { path, .. }) if is_own(path) && !f.alternate() => {
                writeln!(f, "write {}", path.display())
            }
            Self::Change(Change::Remove { path, .. }) if is_own(path) && !f.alternate() => {
                writeln!(f, "remove {}", path.display())
            }
            Self::Change(change) => change.fmt(f),
            Self::Discard { path } => writeln!(f, "remove {}", path.display()),
        }
    }
}

pub(crate) fn is_own(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_specification = path.parent().is_some_and(|dir| dir.ends_with("cdi"));
    path.starts_with(ROOT)
        || path.starts_with(UNITS)
        || Path::new(CONFIG) == path
        || is_specification && name.starts_with(FILE_PREFIX)
}

fn make_tree(host: &HostRoot, path: &Path, (file, text): &(PathBuf, String)) -> Result<()> {
    let at = host.entry(path)?;
    let new = at.sibling(unfinished_name(at.name()));
    new.remove_all()?;
    let inside = file.strip_prefix(path).unwrap_or(file);
    let made = tree::write_new(&new, inside, text)
        .and_then(|()| rename(&new, &at, RenameFlags::RENAME_NOREPLACE));
    or_remove(&new, made)
}

fn publish_tree(host: &HostRoot, from: &Path, to: &Path, exchange: bool) -> Result<()> {
    let flags = if exchange {
        RenameFlags::RENAME_EXCHANGE
    } else {
        RenameFlags::RENAME_NOREPLACE
    };
    rename(&host.entry(from)?, &host.entry(to)?, flags)
}

fn discard_tree(host: &HostRoot, path: &Path) -> Result<()> {
    let at = host.entry(path)?;
    let old = at.sibling(discarded_name(at.name()));
    old.remove_all()?;
    // The leftover of an interrupted run may be gone, because an earlier step used its name.
    if at.stat()?.is_none() {
        return Ok(());
    }
    rename(&at, &old, RenameFlags::RENAME_NOREPLACE)?;
    Ok(old.remove_all()?)
}

fn set_link(host: &HostRoot, link: &Path, to: Option<&Path>) -> Result<()> {
    let at = host.entry(link)?;
    let before = host.read_link(link)?;
    let Some(to) = to else {
        at.remove_file()?;
        return Ok(at.sync().inspect_err(|_| {
            let _ = before.map(|before| at.make_link(&before));
        })?);
    };
    let new = at.sibling(unfinished_name(at.name()));
    new.remove_all()?;
    new.make_link(to)?;
    let flags = match before {
        Some(_) => RenameFlags::RENAME_EXCHANGE,
        None => RenameFlags::RENAME_NOREPLACE,
    };
    let made = rename(&new, &at, flags);
    // The temporary name now has the old link after an exchange, or the new link after a
    // failure.
    new.remove_all()?;
    made
}

/// Renames a file or directory. The rename is undone if it cannot be flushed to disk.
fn rename(from: &Place, to: &Place, flags: RenameFlags) -> Result<()> {
    from.rename(to, flags)?;
    Ok(to.sync().inspect_err(|_| {
        // A second failure is ignored, because the first one is reported.
        let _ = to.rename(from, flags);
    })?)
}

/// Removes `made` if its creation failed, so that no incomplete files remain, for example on a
/// full disk.
fn or_remove(made: &Place, result: Result<()>) -> Result<()> {
    if result.is_err() {
        // A second failure is ignored, because the first one is reported.
        let _ = made.remove_all();
    }
    result
}

/// Returns the steps that remove the leftovers of a run that was killed. Leftovers have temporary
/// names to which nothing refers, so they can be removed at any time.
pub(crate) fn discard_leftovers(host: &HostRoot) -> Result<Vec<Step>> {
    let root = Path::new(ROOT);
    let mut left: Vec<PathBuf> = host
        .list(root)?
        .iter()
        .filter(|name| is_leftover(&name.to_string_lossy()))
        .map(|name| root.join(name))
        .collect();
    // Leftovers can also be beside the directories that a run makes first.
    let above = root.parent().unwrap_or(root);
    for dir in [above, root, Path::new(STATE)] {
        let Some(name) = dir.file_name() else {
            continue;
        };
        let names = [unfinished_name(name), discarded_name(name)];
        let paths = names.map(|name| dir.with_file_name(name));
        left.extend(paths.into_iter().filter(|p| host.exists(p)));
    }
    left.sort();
    left.dedup();
    Ok(left
        .into_iter()
        .map(|path| Step::Discard { path })
        .collect())
}

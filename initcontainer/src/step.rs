//! The steps of an installation or removal. A step is executed completely or not at all, and can
//! be undone. The host works after every step.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use device_class::config::DIRECTORIES_PATH;
use injection_plan::cdi::FILE_PREFIX;
use nix::fcntl::RenameFlags;
use runtime_config::{Change, Place};

use crate::host::Host;
use crate::layout::{SHARED_LINKS, UNITS, discarded_name, is_leftover, unfinished_name};
use crate::payload::Payload;
use crate::tree;

/// A change of the host that is executed as a whole.
#[derive(Debug, Clone)]
pub enum Step {
    /// Make a directory that contains one file. It is made under a temporary name and then
    /// renamed, so that no process sees it incomplete.
    MakeTree {
        path: PathBuf,
        /// The path and the text of the file.
        file: (PathBuf, String),
    },
    /// Copy the files of a version into a temporary directory.
    Stage { payload: Payload, to: PathBuf },
    /// Rename a complete directory to its final name. If a directory has that name, the two are
    /// exchanged.
    Publish {
        from: PathBuf,
        to: PathBuf,
        /// Whether a directory already has the final name.
        exchange: bool,
    },
    /// Make, change or remove a symbolic link.
    SetLink {
        link: PathBuf,
        /// The target before the step. `None` means that the link does not exist.
        before: Option<PathBuf>,
        /// The target after the step. `None` means that the link is removed.
        after: Option<PathBuf>,
    },
    /// Change a file or directory of the host or of an engine.
    Change(Change),
    /// Remove a directory with its content. It is renamed before it is emptied. This step cannot
    /// be undone, so it comes last.
    Discard { path: PathBuf },
}

/// Executes the steps in order, and calls `after` after each one. If a step fails, the earlier
/// ones are undone.
pub fn run(host: &Host, steps: &[Step], mut after: impl FnMut(&Step) -> Result<()>) -> Result<()> {
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

/// Describes how many links to manual pages and completions the steps change, or returns `None` if
/// there are none.
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
            Self::SetLink { link, .. } => link,
            Self::Change(change) => change.path(),
        }
    }

    /// Returns whether the step changes a link to a manual page or to completions.
    fn is_shared_link(&self) -> bool {
        matches!(self, Self::SetLink { link, .. } if link.starts_with(SHARED_LINKS))
    }

    fn apply(&self, host: &Host) -> Result<()> {
        match self {
            Self::MakeTree { path, file } => make_tree(host, path, file),
            Self::Stage { payload, to } => {
                let to = host.entry(to)?;
                to.remove_all()?;
                remove_on_error(&to, tree::copy_payload(payload, &to))
            }
            Self::Publish { from, to, exchange } => publish_tree(host, from, to, *exchange),
            Self::SetLink { link, after, .. } => set_link(host, link, after.as_deref()),
            Self::Change(change) => Ok(change.apply(host)?),
            Self::Discard { path } => discard_tree(host, path),
        }
    }

    fn undo(&self, host: &Host) -> Result<()> {
        match self {
            Self::MakeTree { path, .. } => discard_tree(host, path),
            Self::Stage { to, .. } => Ok(host.entry(to)?.remove_all()?),
            Self::Publish { from, to, exchange } => publish_tree(host, to, from, *exchange),
            Self::SetLink { link, before, .. } => set_link(host, link, before.as_deref()),
            Self::Change(change) => Ok(change.undo(host)?),
            Self::Discard { .. } => Ok(()),
        }
    }
}

/// Describes the step for an operator. A change of an engine's file is shown as a diff. The
/// alternate form (`{:#}`) also lists copied files and shows Boathook's own files as diffs.
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
            // The many links to manual pages and completions are counted instead of listed.
            Self::SetLink { .. } if self.is_shared_link() && !f.alternate() => Ok(()),
            Self::SetLink {
                link,
                after: Some(to),
                ..
            } => {
                writeln!(f, "link {} -> {}", link.display(), to.display())
            }
            Self::SetLink {
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
    // These directories are named `boathook` on every host, whatever their parents are.
    let is_of_installation = path
        .parent()
        .is_some_and(|dir| dir.ends_with("boathook/state"))
        || path.ends_with("boathook/config.toml");
    is_of_installation
        || path.starts_with(UNITS)
        || Path::new(DIRECTORIES_PATH) == path
        || is_specification && name.starts_with(FILE_PREFIX)
}

fn make_tree(host: &Host, path: &Path, (file, text): &(PathBuf, String)) -> Result<()> {
    let at = host.entry(path)?;
    let new = at.sibling(unfinished_name(at.name()));
    new.remove_all()?;
    let inside = file.strip_prefix(path).unwrap_or(file);
    let made = tree::write_tree(&new, inside, text)
        .and_then(|()| rename(&new, &at, RenameFlags::RENAME_NOREPLACE));
    remove_on_error(&new, made)
}

fn publish_tree(host: &Host, from: &Path, to: &Path, exchange: bool) -> Result<()> {
    let flags = if exchange {
        RenameFlags::RENAME_EXCHANGE
    } else {
        RenameFlags::RENAME_NOREPLACE
    };
    rename(&host.entry(from)?, &host.entry(to)?, flags)
}

fn discard_tree(host: &Host, path: &Path) -> Result<()> {
    let at = host.entry(path)?;
    let old = at.sibling(discarded_name(at.name()));
    old.remove_all()?;
    // An earlier step may have reused the temporary name and so removed this leftover.
    if at.stat()?.is_none() {
        return Ok(());
    }
    rename(&at, &old, RenameFlags::RENAME_NOREPLACE)?;
    Ok(old.remove_all()?)
}

fn set_link(host: &Host, link: &Path, to: Option<&Path>) -> Result<()> {
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
    // The temporary name now has the old link after an exchange, or the new link after a failure.
    new.remove_all()?;
    made
}

/// Renames a file or directory. If the rename cannot be flushed to disk, it is undone.
fn rename(from: &Place, to: &Place, flags: RenameFlags) -> Result<()> {
    from.rename(to, flags)?;
    Ok(to.sync().inspect_err(|_| {
        // A second failure is ignored, because the first one is reported.
        let _ = to.rename(from, flags);
    })?)
}

/// Removes `place` if `result` is an error, so that no incomplete files remain, for example on a
/// full disk.
fn remove_on_error(place: &Place, result: Result<()>) -> Result<()> {
    if result.is_err() {
        // A second failure is ignored, because the first one is reported.
        let _ = place.remove_all();
    }
    result
}

/// Plans the removal of what killed runs left. These files have temporary names to which nothing
/// refers, so they can be removed at any time.
pub(crate) fn discard_leftovers(host: &Host) -> Result<Vec<Step>> {
    let root = host.programs();
    let mut left: Vec<PathBuf> = host
        .list(root)?
        .iter()
        .filter(|name| is_leftover(&name.to_string_lossy()))
        .map(|name| root.join(name))
        .collect();
    // Temporary names can also be beside the directories that a run makes first.
    let above = root.parent().unwrap_or(root);
    for dir in [above, root, &host.state()] {
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

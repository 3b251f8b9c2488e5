//! The steps of an installation or removal. A step is executed completely or not at all. Every step
//! except [`Step::Discard`] can be undone. Containers can start after every step.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use device_class::config::DIRECTORIES_FILE_PATH;
use injection_plan::cdi::SPEC_FILE_PREFIX;
use nix::fcntl::RenameFlags;
use runtime_config::{Change, HostEntry};

use crate::host::Host;
use crate::layout::{
    SHARED_LINKS_DIR, SYSTEMD_UNITS_DIR, is_temporary_name, temp_name_for_creation,
    temp_name_for_removal,
};
use crate::payload::Payload;
use crate::tree;

/// A change of the host that is executed either completely or not at all.
#[derive(Debug, Clone)]
pub enum Step {
    /// Makes a directory that contains one file, such as the program directory with the manifest.
    /// The directory has a temporary name until it is complete, so that no process sees it
    /// incomplete.
    MakeTree {
        path: PathBuf,
        /// The path and the text of the file.
        file: (PathBuf, String),
    },
    /// Copies the files of a version into a temporary directory.
    Stage {
        payload: Box<Payload>,
        staging_dir: PathBuf,
    },
    /// Renames a complete directory to its final name. If another directory already has that name,
    /// the two directories are exchanged (renameat2(2), RENAME_EXCHANGE).
    Publish {
        staging_dir: PathBuf,
        final_dir: PathBuf,
        /// Whether another directory already has the final name, so that the two directories are
        /// exchanged.
        replaces_existing: bool,
    },
    /// Makes, changes or removes a symbolic link.
    SetLink {
        link: PathBuf,
        /// The target of the link before the step. `None` means that the link does not exist
        /// before.
        old_target: Option<PathBuf>,
        /// The target of the link after the step. `None` means that the step removes the link.
        new_target: Option<PathBuf>,
    },
    /// Changes a file or directory that belongs to the host or to an engine, such as
    /// `/etc/docker/daemon.json`.
    Change(Change),
    /// Removes a directory with its content. The directory is renamed before it is emptied. This
    /// step cannot be undone, so the discard steps come last.
    Discard { path: PathBuf },
}

/// Executes the steps in order, and calls `on_executed` after each one. If a step or a call of
/// `on_executed` fails, undoes the executed steps in reverse order.
pub fn execute_steps(
    host: &Host,
    steps: &[Step],
    mut on_executed: impl FnMut(&Step) -> Result<()>,
) -> Result<()> {
    for (index, step) in steps.iter().enumerate() {
        let (result, executed_count) = match step.apply(host) {
            Ok(()) => (on_executed(step), index + 1),
            Err(error) => (Err(error), index),
        };
        let Err(error) = result else {
            continue;
        };
        for step in steps[..executed_count].iter().rev() {
            if let Err(undo_error) = step.undo(host) {
                return Err(anyhow!(
                    "{error:#}; and undoing the earlier steps failed too: {undo_error:#}"
                ));
            }
        }
        return Err(error);
    }
    Ok(())
}

/// Describes how many links to manual pages and completions the steps change. Returns `None` if
/// they change no such link.
pub fn describe_shared_link_count(steps: &[Step]) -> Option<String> {
    match steps.iter().filter(|step| step.is_shared_link()).count() {
        0 => None,
        count => Some(format!(
            "{count} links to manual pages and completions below {SHARED_LINKS_DIR}"
        )),
    }
}

impl Step {
    /// Returns the path that the step makes, changes or removes.
    pub fn path(&self) -> &Path {
        match self {
            Self::MakeTree { path, .. } | Self::Discard { path } => path,
            Self::Stage { staging_dir, .. } => staging_dir,
            Self::Publish { final_dir, .. } => final_dir,
            Self::SetLink { link, .. } => link,
            Self::Change(change) => change.path(),
        }
    }

    /// Returns whether the step changes a link to a manual page or to shell completions.
    fn is_shared_link(&self) -> bool {
        matches!(self, Self::SetLink { link, .. } if link.starts_with(SHARED_LINKS_DIR))
    }

    fn apply(&self, host: &Host) -> Result<()> {
        match self {
            Self::MakeTree { path, file } => make_tree(host, path, file),
            Self::Stage {
                payload,
                staging_dir,
            } => {
                let entry = host.resolve_nofollow(staging_dir)?;
                entry.remove_all()?;
                remove_on_error(&entry, tree::copy_payload(payload, &entry))
            }
            Self::Publish {
                staging_dir,
                final_dir,
                replaces_existing,
            } => rename_dir(host, staging_dir, final_dir, *replaces_existing),
            Self::SetLink {
                link, new_target, ..
            } => set_link(host, link, new_target.as_deref()),
            Self::Change(change) => Ok(change.apply(host)?),
            Self::Discard { path } => discard_tree(host, path),
        }
    }

    fn undo(&self, host: &Host) -> Result<()> {
        match self {
            Self::MakeTree { path, .. } => discard_tree(host, path),
            Self::Stage { staging_dir, .. } => {
                Ok(host.resolve_nofollow(staging_dir)?.remove_all()?)
            }
            Self::Publish {
                staging_dir,
                final_dir,
                replaces_existing,
            } => rename_dir(host, final_dir, staging_dir, *replaces_existing),
            Self::SetLink {
                link, old_target, ..
            } => set_link(host, link, old_target.as_deref()),
            Self::Change(change) => Ok(change.undo(host)?),
            Self::Discard { .. } => Ok(()),
        }
    }
}

/// Describes the step for an operator. A change of an engine's file is shown as a diff. The
/// alternate form (`{:#}`) also lists copied files, and shows changes of Boathook's own files as
/// diffs.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeTree { path, file } => {
                writeln!(f, "mkdir {} (with {})", path.display(), file.0.display())
            }
            Self::Stage {
                payload,
                staging_dir,
            } => {
                writeln!(
                    f,
                    "copy {} files to {}",
                    payload.files().count(),
                    staging_dir.display()
                )?;
                let max_listed_files = if f.alternate() { usize::MAX } else { 0 };
                let mut files = payload.files().take(max_listed_files);
                files.try_for_each(|file| writeln!(f, "  {}/{}", file.dir, file.name))
            }
            Self::Publish {
                staging_dir,
                final_dir,
                ..
            } => {
                writeln!(
                    f,
                    "rename {} to {}",
                    staging_dir.display(),
                    final_dir.display()
                )
            }
            // The many links to manual pages and completions are counted instead of listed.
            Self::SetLink { .. } if self.is_shared_link() && !f.alternate() => Ok(()),
            Self::SetLink {
                link,
                new_target: Some(target),
                ..
            } => {
                writeln!(f, "link {} -> {}", link.display(), target.display())
            }
            Self::SetLink {
                link,
                new_target: None,
                ..
            } => writeln!(f, "unlink {}", link.display()),
            // For Boathook's own files only the path is shown, because an operator need not know
            // their texts.
            Self::Change(Change::Write { path, .. })
                if is_boathook_file(path) && !f.alternate() =>
            {
                writeln!(f, "write {}", path.display())
            }
            Self::Change(Change::Remove { path, .. })
                if is_boathook_file(path) && !f.alternate() =>
            {
                writeln!(f, "remove {}", path.display())
            }
            Self::Change(change) => change.fmt(f),
            Self::Discard { path } => writeln!(f, "remove {}", path.display()),
        }
    }
}

/// Returns whether `path` is the path of a file that only Boathook writes. The text of such a file
/// is shown to the operator only if the output is verbose.
pub(crate) fn is_boathook_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_specification = path.parent().is_some_and(|dir| dir.ends_with("cdi"));
    // On every host, the state directory and the configuration directory have these names. Only
    // their parents differ.
    let belongs_to_installation = path
        .parent()
        .is_some_and(|dir| dir.ends_with("boathook/state"))
        || path.ends_with("boathook/config.toml");
    belongs_to_installation
        || path.starts_with(SYSTEMD_UNITS_DIR)
        || Path::new(DIRECTORIES_FILE_PATH) == path
        || is_specification && name.starts_with(SPEC_FILE_PREFIX)
}

fn make_tree(host: &Host, path: &Path, (file, text): &(PathBuf, String)) -> Result<()> {
    let entry = host.resolve_nofollow(path)?;
    let temporary_entry = entry.sibling(temp_name_for_creation(entry.name()));
    temporary_entry.remove_all()?;
    let path_in_tree = file.strip_prefix(path).unwrap_or(file);
    let result = tree::write_tree(&temporary_entry, path_in_tree, text)
        .and_then(|()| rename_and_sync(&temporary_entry, &entry, RenameFlags::RENAME_NOREPLACE));
    remove_on_error(&temporary_entry, result)
}

/// Renames a directory. If `replaces_existing` is true, the directory `target` exists and gets the
/// name `source` in exchange.
fn rename_dir(host: &Host, source: &Path, target: &Path, replaces_existing: bool) -> Result<()> {
    let flags = if replaces_existing {
        RenameFlags::RENAME_EXCHANGE
    } else {
        RenameFlags::RENAME_NOREPLACE
    };
    rename_and_sync(
        &host.resolve_nofollow(source)?,
        &host.resolve_nofollow(target)?,
        flags,
    )
}

fn discard_tree(host: &Host, path: &Path) -> Result<()> {
    let entry = host.resolve_nofollow(path)?;
    let discarded_entry = entry.sibling(temp_name_for_removal(entry.name()));
    discarded_entry.remove_all()?;
    // The path may have a temporary name that an interrupted run left. An earlier step may have
    // reused that name, so that there is nothing to remove any more.
    if entry.stat()?.is_none() {
        return Ok(());
    }
    rename_and_sync(&entry, &discarded_entry, RenameFlags::RENAME_NOREPLACE)?;
    Ok(discarded_entry.remove_all()?)
}

/// Makes or changes a symbolic link. If `target` is `None`, removes the link.
fn set_link(host: &Host, link: &Path, target: Option<&Path>) -> Result<()> {
    let entry = host.resolve_nofollow(link)?;
    let old_target = host.read_link(link)?;
    let Some(target) = target else {
        entry.remove_file()?;
        return Ok(entry.sync_dir().inspect_err(|_| {
            let _ = old_target.map(|old_target| entry.make_symlink(&old_target));
        })?);
    };
    let temporary_entry = entry.sibling(temp_name_for_creation(entry.name()));
    temporary_entry.remove_all()?;
    temporary_entry.make_symlink(target)?;
    let flags = match old_target {
        Some(_) => RenameFlags::RENAME_EXCHANGE,
        None => RenameFlags::RENAME_NOREPLACE,
    };
    let result = rename_and_sync(&temporary_entry, &entry, flags);
    // After an exchange, the temporary name has the old link. After a failure, it has the new link.
    temporary_entry.remove_all()?;
    result
}

/// Renames a file or directory. If the rename cannot be flushed to disk, it is undone.
fn rename_and_sync(source: &HostEntry, target: &HostEntry, flags: RenameFlags) -> Result<()> {
    source.rename(target, flags)?;
    Ok(target.sync_dir().inspect_err(|_| {
        // If this rename fails as well, its error is ignored, because the first error is reported.
        let _ = target.rename(source, flags);
    })?)
}

/// If `result` is an error, removes `entry` with its content, so that no incomplete files are left,
/// for example on a full disk. Returns `result`.
fn remove_on_error(entry: &HostEntry, result: Result<()>) -> Result<()> {
    if result.is_err() {
        // If the removal fails as well, its error is ignored, because the first error is reported.
        let _ = entry.remove_all();
    }
    result
}

/// Plans the removal of the files that killed runs have left. Nothing refers to the temporary names
/// of these files, so they can be removed at any time.
pub(crate) fn plan_leftover_removal(host: &Host) -> Result<Vec<Step>> {
    let programs_dir = host.programs_dir();
    let mut leftovers: Vec<PathBuf> = host
        .list(programs_dir)?
        .iter()
        .filter(|name| is_temporary_name(&name.to_string_lossy()))
        .map(|name| programs_dir.join(name))
        .collect();
    // The directories that a run makes first get temporary names in the same directory as their
    // final names.
    let parent_dir = programs_dir.parent().unwrap_or(programs_dir);
    for dir in [parent_dir, programs_dir, &host.state_dir()] {
        let Some(name) = dir.file_name() else {
            continue;
        };
        let names = [temp_name_for_creation(name), temp_name_for_removal(name)];
        let paths = names.map(|name| dir.with_file_name(name));
        leftovers.extend(paths.into_iter().filter(|path| host.exists(path)));
    }
    leftovers.sort();
    leftovers.dedup();
    Ok(leftovers
        .into_iter()
        .map(|path| Step::Discard { path })
        .collect())
}

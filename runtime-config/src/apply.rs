//! Makes the changes of a plan on the host. All decisions were made when the plan was computed.

use std::io::{self, Write};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use nix::fcntl::RenameFlags;

use crate::change::Change;
use crate::error::Error;
use crate::host::{HostEntry, HostRoot};

impl Change {
    /// Makes the change.
    ///
    /// The new text is written to a scratch file, flushed to disk, and renamed over the file. So a
    /// reader sees either the whole old text or the whole new text, even after a power failure.
    ///
    /// # Errors
    /// Fails if the file has changed since the plan was made, or if the system refuses the change.
    /// Nothing is changed then.
    pub fn apply(&self, host: &HostRoot) -> Result<(), Error> {
        if matches!(self, Self::RemoveDir { path } if !host.exists(path)) {
            return Ok(());
        }
        // An administrator may have replaced an engine's file by a symbolic link, so such a link is
        // followed. A link at the path of a file that only Boathook writes is not followed.
        let entry = if has_boathook_in_path(self.path()) {
            host.resolve_nofollow(self.path())?
        } else {
            host.resolve(self.path())?
        };
        if !self.apply_without_sync(&entry)? {
            return Ok(());
        }
        entry.sync_dir().inspect_err(|_| {
            // A change that could not be flushed to disk is undone. If the undo fails as well, that
            // error is ignored, because the first error is reported.
            let _ = self.inverse().apply_without_sync(&entry);
        })
    }

    /// Undoes a change that [`Self::apply`] has made. Fails if the file has been changed again
    /// since then.
    pub fn undo(&self, host: &HostRoot) -> Result<(), Error> {
        // `apply` does not remove a directory that is in use, so there is nothing to undo.
        if matches!(self, Self::RemoveDir { path } if host.exists(path)) {
            return Ok(());
        }
        self.inverse().apply(host)
    }

    /// Makes the change, but does not flush the directory to disk. Returns `false` if nothing was
    /// changed, because a directory to remove is in use or missing.
    fn apply_without_sync(&self, entry: &HostEntry) -> Result<bool, Error> {
        match self {
            // A directory that appeared after the plan was made belongs to somebody else, so this
            // is an error. The installation record must not list such a directory, because an undo
            // would remove it.
            Self::MakeDir { .. } => entry.make_dir().map(|()| true),
            Self::RemoveDir { .. } => remove_dir_if_unused(entry),
            Self::Write {
                old_text,
                new_text,
                mode,
                ..
            } => write_file(entry, old_text.as_deref(), new_text, *mode),
            Self::Remove { old_text, .. } => {
                check_file_text(entry, Some(old_text))?;
                entry.remove_file()?;
                Ok(true)
            }
        }
    }
}

/// Returns whether only Boathook writes the file. Such a file is a drop-in or an installation
/// record. A component of its path contains `boathook`.
fn has_boathook_in_path(path: &Path) -> bool {
    let mut names = path.iter().map(|name| name.to_string_lossy());
    names.any(|name| name.contains("boathook"))
}

/// Returns an error if the file does not have the text `text`. `None` means that the file must not
/// exist.
fn check_file_text(entry: &HostEntry, text: Option<&str>) -> Result<(), Error> {
    if entry.read()?.as_deref() == text {
        return Ok(());
    }
    Err(Error::Other(format!(
        "{} changed after the plan was made; nothing was written to it, plan again",
        entry.display_path().display()
    )))
}

fn write_file(
    entry: &HostEntry,
    old_text: Option<&str>,
    new_text: &str,
    mode: u32,
) -> Result<bool, Error> {
    check_file_text(entry, old_text)?;
    let scratch = scratch_entry(entry);
    scratch.remove_all()?;
    let result = write_scratch_file(entry, &scratch, new_text, mode)
        .and_then(|()| check_file_text(entry, old_text))
        .and_then(|()| scratch.rename(entry, RenameFlags::empty()));
    if result.is_err() {
        // An error of this removal is ignored, because the first error is reported.
        let _ = scratch.remove_file();
    }
    result.map(|()| true)
}

/// Returns the path of the scratch file for the file `path`. The new text is written to the scratch
/// file, which is then renamed to `path`.
///
/// The scratch file is in the same directory as `path`. If that is a `.d` directory, the scratch
/// file is in the parent directory instead, because some engines (CRI-O) read every file in a `.d`
/// directory, whatever its name is.
pub fn scratch_path(path: &Path) -> PathBuf {
    let dir = path.parent().unwrap_or(path);
    let scratch_dir = match dir.parent().filter(|_| is_drop_in_dir(dir)) {
        Some(parent) => parent,
        None => dir,
    };
    scratch_dir.join(scratch_name(path))
}

/// Returns the entry of the scratch file for the file `entry`. The scratch file is in the directory
/// that [`scratch_path`] describes.
pub fn scratch_entry(entry: &HostEntry) -> HostEntry {
    let name = scratch_name(Path::new(entry.name()));
    match entry.parent() {
        Some(dir) if is_drop_in_dir(Path::new(dir.name())) => dir.sibling(name),
        _ => entry.sibling(name),
    }
}

fn is_drop_in_dir(dir: &Path) -> bool {
    dir.extension().is_some_and(|extension| extension == "d")
}

fn scratch_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.boathook-new")
}

/// Writes the text to the scratch file, and gives it the mode and owner of the file that it will
/// replace. If there is no such file, its mode is `new_mode`.
fn write_scratch_file(
    entry: &HostEntry,
    scratch: &HostEntry,
    text: &str,
    new_mode: u32,
) -> Result<(), Error> {
    let replaced_stat = entry.stat()?;
    let mode = replaced_stat
        .as_ref()
        .map_or(new_mode, |stat| stat.st_mode & 0o7777);
    scratch.create_file(mode, |file| {
        file.write_all(text.as_bytes())?;
        let Some(replaced_stat) = &replaced_stat else {
            return Ok(());
        };
        let scratch_stat = nix::sys::stat::fstat(&*file)?;
        if (scratch_stat.st_uid, scratch_stat.st_gid)
            == (replaced_stat.st_uid, replaced_stat.st_gid)
        {
            return Ok(());
        }
        fchown(
            &*file,
            Some(replaced_stat.st_uid),
            Some(replaced_stat.st_gid),
        )
    })
}

/// Removes an empty directory. Returns `false` if the directory is in use or missing.
fn remove_dir_if_unused(entry: &HostEntry) -> Result<bool, Error> {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    let Err(error) = entry.remove_dir() else {
        return Ok(true);
    };
    match error.kind() {
        // The directory is in use, is missing, or is a mount point in the container of this
        // process.
        Some(DirectoryNotEmpty | NotFound | ResourceBusy) => Ok(false),
        _ => Err(error),
    }
}

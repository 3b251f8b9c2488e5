//! Makes the changes of a plan on the host. All decisions were made when the plan was computed.

use std::io::{self, Write};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use nix::fcntl::RenameFlags;

use crate::change::Change;
use crate::error::Error;
use crate::host::{HostRoot, Place};

impl Change {
    /// Makes the change.
    ///
    /// The new text is written to a scratch file, flushed to disk, and renamed over the file.
    /// Therefore a reader sees either the old or the new text at any time, also after a power
    /// failure.
    ///
    /// # Errors
    /// Fails if the file has changed since the plan was made, or if the system refuses. Nothing
    /// is changed then.
    pub fn apply(&self, host: &HostRoot) -> Result<(), Error> {
        if matches!(self, Self::RemoveDir { path } if !host.exists(path)) {
            return Ok(());
        }
        // An administrator may have replaced an engine's file by a link, which is followed. A link at
        // the path of a file that only Boathook writes is not followed.
        let place = if is_own(self.path()) {
            host.entry(self.path())?
        } else {
            host.place(self.path())?
        };
        if !self.make(&place)? {
            return Ok(());
        }
        place.sync().inspect_err(|_| {
            // A change that could not be flushed to disk is undone. A second failure is ignored,
            // because the first one is reported.
            let _ = self.inverse().make(&place);
        })
    }

    /// Undoes the change after [`Self::apply`].
    pub fn undo(&self, host: &HostRoot) -> Result<(), Error> {
        // `apply` does not remove a directory that is in use, so there is nothing to undo.
        if matches!(self, Self::RemoveDir { path } if host.exists(path)) {
            return Ok(());
        }
        self.inverse().apply(host)
    }

    /// Makes the change without flushing the directory to disk. Returns `false` if nothing was
    /// changed, because a directory to remove is in use or missing.
    fn make(&self, place: &Place) -> Result<bool, Error> {
        match self {
            // A directory that appeared after the plan was made belongs to somebody else. It
            // must neither be recorded as made nor be removed later.
            Self::MakeDir { .. } => place.make_dir().map(|()| true),
            Self::RemoveDir { .. } => remove_dir(place),
            Self::Write {
                before,
                after,
                mode,
                ..
            } => write(place, before.as_deref(), after, *mode),
            Self::Remove { before, .. } => {
                check_text(place, Some(before))?;
                place.remove_file()?;
                Ok(true)
            }
        }
    }
}

/// Returns whether only Boathook writes the file. Such a file is a drop-in or a record, and a name in
/// its path contains `boathook`.
fn is_own(path: &Path) -> bool {
    let mut names = path.iter().map(|name| name.to_string_lossy());
    names.any(|name| name.contains("boathook"))
}

fn check_text(place: &Place, text: Option<&str>) -> Result<(), Error> {
    if place.read()?.as_deref() == text {
        return Ok(());
    }
    Err(Error::Other(format!(
        "{} changed after the plan was made; nothing was written to it, plan again",
        place.shown().display()
    )))
}

fn write(place: &Place, before: Option<&str>, after: &str, mode: u32) -> Result<bool, Error> {
    check_text(place, before)?;
    let new = scratch_place(place);
    new.remove_all()?;
    let result = write_scratch_file(place, &new, after, mode)
        .and_then(|()| check_text(place, before))
        .and_then(|()| new.rename(place, RenameFlags::empty()));
    if result.is_err() {
        // A second failure is ignored, because the first one is reported.
        let _ = new.remove_file();
    }
    result.map(|()| true)
}

/// Returns the path of the scratch file for the file at `at`. The new text is written to the scratch
/// file, which is then renamed to `at`.
///
/// The scratch file is in the same directory. For a file in a `.d` directory it is in the directory
/// above, because some engines (CRI-O) read every file in a `.d` directory, whatever its name.
pub fn scratch_path(at: &Path) -> PathBuf {
    let dir = at.parent().unwrap_or(at);
    let dir = match dir.parent().filter(|_| is_drop_in_dir(dir)) {
        Some(above) => above,
        None => dir,
    };
    dir.join(scratch_name(at))
}

/// Returns the same as [`scratch_path`] for a path that is resolved already.
pub fn scratch_place(place: &Place) -> Place {
    let name = scratch_name(Path::new(place.name()));
    match place.parent() {
        Some(dir) if is_drop_in_dir(Path::new(dir.name())) => dir.sibling(name),
        _ => place.sibling(name),
    }
}

fn is_drop_in_dir(dir: &Path) -> bool {
    dir.extension().is_some_and(|extension| extension == "d")
}

fn scratch_name(at: &Path) -> String {
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.boathook-new")
}

/// Writes the text to a scratch file with the mode and owner of the file that
/// it will replace.
fn write_scratch_file(place: &Place, new: &Place, text: &str, mode: u32) -> Result<(), Error> {
    let old = place.stat()?;
    let mode = old.as_ref().map_or(mode, |stat| stat.st_mode & 0o7777);
    new.create(mode, |file| {
        file.write_all(text.as_bytes())?;
        let Some(old) = &old else {
            return Ok(());
        };
        let now = nix::sys::stat::fstat(&*file)?;
        if (now.st_uid, now.st_gid) == (old.st_uid, old.st_gid) {
            return Ok(());
        }
        fchown(&*file, Some(old.st_uid), Some(old.st_gid))
    })
}

fn remove_dir(place: &Place) -> Result<bool, Error> {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    let Err(error) = place.remove_dir() else {
        return Ok(true);
    };
    match error.kind() {
        // The directory is in use, or it is a mount point of the container of this process.
        Some(DirectoryNotEmpty | NotFound | ResourceBusy) => Ok(false),
        _ => Err(error),
    }
}

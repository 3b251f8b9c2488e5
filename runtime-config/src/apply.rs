//! Carrying changes out. Nothing is decided here.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::change::Change;
use crate::error::Error;
use crate::host::{HostRoot, is_absent};

impl Change {
    /// Makes the change.
    ///
    /// A file is written beside its place, flushed to disk and renamed over
    /// it: whoever reads it, and whenever the power fails, sees the old text
    /// or the new one.
    ///
    /// # Errors
    /// The file is not what the plan was made from, or the system refuses.
    /// Nothing was changed then.
    pub fn apply(&self, host: &HostRoot) -> Result<(), Error> {
        let at = host.locate(self.path())?;
        match self {
            Self::MakeDir { .. } => make_dir(&at),
            Self::RemoveDir { .. } => remove_dir(&at),
            Self::Write {
                path,
                before,
                after,
                mode,
            } => {
                expect(host, path, before.as_deref())?;
                write(&at, after, *mode, || expect(host, path, before.as_deref()))
            }
            Self::Remove { path, before, .. } => {
                expect(host, path, Some(before))?;
                fs::remove_file(&at).map_err(Error::io("remove", &at))?;
                sync_dir(&at)
            }
        }
    }
}

/// Makes all the changes, or none: at the first failure those before it are
/// taken back.
///
/// # Errors
/// What failed, and what failed while taking back, if anything did.
pub fn apply(host: &HostRoot, changes: &[Change]) -> Result<(), Error> {
    for (done, change) in changes.iter().enumerate() {
        let Err(first) = change.apply(host) else {
            continue;
        };
        for made in changes[..done].iter().rev() {
            if let Err(second) = made.inverse().apply(host) {
                let (first, second) = (Box::new(first), Box::new(second));
                return Err(Error::Rollback { first, second });
            }
        }
        return Err(first);
    }
    Ok(())
}

fn expect(host: &HostRoot, path: &Path, text: Option<&str>) -> Result<(), Error> {
    if host.read(path)?.as_deref() == text {
        Ok(())
    } else {
        Err(Error::Changed { path: path.into() })
    }
}

fn write(
    at: &Path,
    text: &str,
    mode: u32,
    unchanged: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let new = scratch(at);
    let result = fill(at, &new, text, mode)
        .and_then(|()| unchanged())
        .and_then(|()| fs::rename(&new, at).map_err(Error::io("write", at)))
        .and_then(|()| sync_dir(at));
    if result.is_err() {
        // The failure at hand matters more than a second one here.
        let _ = fs::remove_file(&new);
    }
    result
}

/// Where a file's new text is written before it is renamed into place.
///
/// Beside the file; beside the directory where that is a `.d` directory, for
/// some engines (CRI-O) read every file in one, whatever its name.
pub fn scratch(at: &Path) -> PathBuf {
    let dir = at.parent().unwrap_or(at);
    let dir = match dir.extension() {
        Some(extension) if extension == "d" => dir.parent().unwrap_or(dir),
        _ => dir,
    };
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    dir.join(format!(".{name}.boathook-new"))
}

/// Writes the text to a scratch file with the mode and owner of the file that
/// it will replace.
fn fill(at: &Path, new: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let old = match at.metadata() {
        Ok(meta) => Some(meta),
        Err(e) if is_absent(&e) => None,
        Err(e) => return Err(Error::io("read", at)(e)),
    };
    // What a killed run may have left.
    match fs::remove_file(new) {
        Err(e) if !is_absent(&e) => return Err(Error::io("remove", new)(e)),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(new)
        .map_err(Error::io("write", new))?;
    let mode = old.as_ref().map_or(mode, |meta| meta.mode() & 0o7777);
    let mut finish = || -> io::Result<()> {
        file.write_all(text.as_bytes())?;
        if let Some(meta) = &old {
            let now = file.metadata()?;
            if (now.uid(), now.gid()) != (meta.uid(), meta.gid()) {
                fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
            }
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()
    };
    finish().map_err(Error::io("write", new))
}

fn make_dir(at: &Path) -> Result<(), Error> {
    match fs::create_dir(at) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && at.is_dir() => return Ok(()),
        Err(e) => return Err(Error::io("make", at)(e)),
    }
    // Whatever the umask of the caller is.
    fs::set_permissions(at, Permissions::from_mode(0o755)).map_err(Error::io("make", at))?;
    sync_dir(at)
}

fn remove_dir(at: &Path) -> Result<(), Error> {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound, ResourceBusy};
    match fs::remove_dir(at) {
        Ok(()) => sync_dir(at),
        // Someone uses it, or it is a mount point of the container we run in.
        Err(e) if matches!(e.kind(), DirectoryNotEmpty | NotFound | ResourceBusy) => Ok(()),
        Err(e) => Err(Error::io("remove", at)(e)),
    }
}

/// Makes a rename or removal last: flushes the directory above.
fn sync_dir(at: &Path) -> Result<(), Error> {
    let dir = at.parent().unwrap_or(at);
    File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(Error::io("flush", dir))
}

//! Directory trees: copied so that they last, and removed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use runtime_config::Error as HostError;

use crate::error::Error;
use crate::manifest;
use crate::payload::Payload;

/// Copies a payload into a new directory and flushes all of it to disk.
pub(crate) fn copy_payload(payload: &Payload, to: &Path) -> Result<(), Error> {
    make_dir(to)?;
    for (from, name, mode) in payload.files() {
        let at = to.join(name);
        let dir = at.parent().unwrap_or(to);
        if !dir.is_dir() {
            make_dir(dir)?;
        }
        let mut source = File::open(from).map_err(HostError::io("read", from))?;
        create(&at, mode, |file| io::copy(&mut source, file).map(drop))?;
    }
    for dir in fs::read_dir(to).map_err(HostError::io("list", to))? {
        let dir = dir.map_err(HostError::io("list", to))?.path();
        sync(&dir)?;
    }
    sync(to)
}

/// Makes a directory with one file somewhere in it.
pub(crate) fn write_new(top: &Path, file: &Path, text: &str) -> Result<(), Error> {
    let inner = file.parent().unwrap_or(top);
    let mut dirs: Vec<_> = inner
        .ancestors()
        .take_while(|d| d.starts_with(top))
        .collect();
    dirs.reverse();
    for dir in &dirs {
        make_dir(dir)?;
    }
    create(file, manifest::MODE, |f| f.write_all(text.as_bytes()))?;
    dirs.iter().rev().try_for_each(|dir| sync(dir))
}

/// Removes a file, link or directory with all in it, if it is there.
pub(crate) fn remove(at: &Path) -> Result<(), Error> {
    let removed = match at.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(at),
        Ok(_) => fs::remove_file(at),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(HostError::io("remove", at)(e).into()),
        _ => Ok(()),
    }
}

/// Flushes a directory, so that a rename in it outlives a power cut.
pub(crate) fn sync(dir: &Path) -> Result<(), Error> {
    let synced = File::open(dir).and_then(|d| d.sync_all());
    Ok(synced.map_err(HostError::io("flush", dir))?)
}

fn make_dir(at: &Path) -> Result<(), Error> {
    fs::create_dir(at).map_err(HostError::io("make", at))?;
    // Whatever the umask of the caller is.
    let set = fs::set_permissions(at, Permissions::from_mode(0o755));
    Ok(set.map_err(HostError::io("make", at))?)
}

fn create(
    at: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let written = options.open(at).and_then(|mut file| {
        fill(&mut file)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()
    });
    Ok(written.map_err(HostError::io("write", at))?)
}

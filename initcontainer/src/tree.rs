//! Writes and compares the directory trees of an installation.

use std::io::{self, Write};
use std::path::{Component, Path};

use anyhow::Result;
use runtime_config::{Error as HostError, Place};

use crate::manifest;
use crate::payload::Payload;

/// Copies a payload into a new directory, and flushes its files and directories to disk.
pub(crate) fn copy_payload(payload: &Payload, to: &Place) -> Result<()> {
    to.make_dir()?;
    for dir in payload.dirs() {
        descend(to, dir)?.make_dir()?;
    }
    for file in payload.files() {
        let mut source = file.open()?;
        let place = descend(to, Path::new(file.dir))?.child(&file.name)?;
        place.create(file.mode, |out| io::copy(&mut source, out).map(drop))?;
    }
    for dir in payload.dirs() {
        descend(to, dir)?.child(".")?.sync()?;
    }
    Ok(to.child(".")?.sync()?)
}

/// Makes the directory `top` with one file. `file` is the path of the file relative to `top`; its
/// directories are made too. Everything is flushed to disk.
pub(crate) fn write_tree(top: &Place, file: &Path, text: &str) -> Result<()> {
    top.make_dir()?;
    let mut place = top.clone();
    let mut made = vec![];
    for name in file.components().filter_map(normal_name) {
        if !made.is_empty() {
            place.make_dir()?;
        }
        place = place.child(name)?;
        made.push(place.clone());
    }
    place.create(manifest::MODE, |f| f.write_all(text.as_bytes()))?;
    made.iter().rev().try_for_each(Place::sync)?;
    Ok(())
}

/// Returns the place of a relative path below `dir`. Links are not followed.
fn descend(dir: &Place, path: &Path) -> Result<Place, HostError> {
    let mut names = path.components().filter_map(normal_name);
    names.try_fold(dir.clone(), |place, name| place.child(name))
}

fn normal_name(component: Component<'_>) -> Option<&std::ffi::OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }
}

/// Returns whether a directory is an exact copy of a payload: each file has the right bytes and
/// mode and belongs to this user, and there are no other files. An error counts as a difference.
pub(crate) fn is_copy_of(top: &Place, payload: &Payload) -> bool {
    let compare = || -> Result<bool, HostError> {
        let dirs = payload.dirs();
        // A listing also contains subdirectories, so they are added to the number of files.
        let mut expected = dirs
            .iter()
            .filter(|dir| dir.components().count() > 1)
            .count();
        expected += payload.files().count();
        let mut listed = 0;
        for dir in dirs {
            let dir = descend(top, dir)?;
            if !is_own_with_mode(&dir, 0o40755)? {
                return Ok(false);
            }
            listed += dir.list()?.len();
        }
        for file in payload.files() {
            let copy = descend(top, Path::new(file.dir))?.child(&file.name)?;
            if !is_own_with_mode(&copy, 0o100_000 | file.mode)?
                || !have_same_bytes(&mut copy.open_file()?, file.open()?)
            {
                return Ok(false);
            }
        }
        Ok(listed == expected && is_own_with_mode(top, 0o40755)?)
    };
    compare().unwrap_or(false)
}

/// Returns whether the file at a place has the type and permissions `mode` (as in `st_mode`), and
/// belongs to this user.
fn is_own_with_mode(place: &Place, mode: u32) -> Result<bool, HostError> {
    let own = nix::unistd::geteuid().as_raw();
    let stat = place.stat()?;
    Ok(stat.is_some_and(|stat| stat.st_mode == mode && stat.st_uid == own))
}

fn have_same_bytes(one: &mut impl io::Read, mut other: impl io::Read) -> bool {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    one.read_to_end(&mut left).is_ok() && other.read_to_end(&mut right).is_ok() && left == right
}

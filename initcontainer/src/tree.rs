//! Directory trees of Boathook, flushed to disk.

use std::io::{self, Write};
use std::path::{Component, Path};

use anyhow::Result;
use runtime_config::{Error as HostError, Place};

use crate::manifest;
use crate::payload::Payload;

/// Copies a payload into a new directory and flushes all of it to disk.
pub(crate) fn copy_payload(payload: &Payload, to: &Place) -> Result<()> {
    to.make_dir()?;
    for dir in payload.dirs() {
        inside(to, dir)?.make_dir()?;
    }
    for file in payload.files() {
        let mut source = file.open()?;
        let at = inside(to, Path::new(file.dir))?.child(&file.name)?;
        at.create(file.mode, |out| io::copy(&mut source, out).map(drop))?;
    }
    for dir in payload.dirs() {
        inside(to, dir)?.child(".")?.sync()?;
    }
    Ok(to.child(".")?.sync()?)
}

/// Makes a directory with one file, of this path below it.
pub(crate) fn write_new(top: &Place, file: &Path, text: &str) -> Result<()> {
    top.make_dir()?;
    let mut at = top.clone();
    let mut made = vec![];
    for name in file.components().filter_map(normal) {
        if !made.is_empty() {
            at.make_dir()?;
        }
        at = at.child(name)?;
        made.push(at.clone());
    }
    at.create(manifest::MODE, |f| f.write_all(text.as_bytes()))?;
    made.iter().rev().try_for_each(Place::sync)?;
    Ok(())
}

/// A path in the directory that is here.
fn inside(at: &Place, path: &Path) -> Result<Place, HostError> {
    let mut names = path.components().filter_map(normal);
    names.try_fold(at.clone(), |at, name| at.child(name))
}

fn normal(component: Component<'_>) -> Option<&std::ffi::OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }
}

/// Whether a directory holds exactly a payload: each file with its bytes, its
/// mode and root as its owner, and nothing else beside them.
pub(crate) fn holds(at: &Place, payload: &Payload) -> bool {
    let complete = || -> Result<bool, HostError> {
        let dirs = payload.dirs();
        // Directories in directories are listed like files.
        let mut beside = dirs
            .iter()
            .filter(|dir| dir.components().count() > 1)
            .count();
        beside += payload.files().count();
        let mut listed = 0;
        for dir in dirs {
            let dir = inside(at, dir)?;
            if !is(&dir, 0o40755)? {
                return Ok(false);
            }
            listed += dir.list()?.len();
        }
        for file in payload.files() {
            let there = inside(at, Path::new(file.dir))?.child(&file.name)?;
            if !is(&there, 0o100_000 | file.mode)?
                || !have_same_bytes(&mut there.open_file()?, file.open()?)
            {
                return Ok(false);
            }
        }
        Ok(listed == beside && is(at, 0o40755)?)
    };
    complete().unwrap_or(false)
}

/// Whether something of this type and mode is there, and is this user's own.
fn is(place: &Place, mode: u32) -> Result<bool, HostError> {
    let own = nix::unistd::geteuid().as_raw();
    let stat = place.stat()?;
    Ok(stat.is_some_and(|stat| stat.st_mode == mode && stat.st_uid == own))
}

fn have_same_bytes(one: &mut impl io::Read, mut other: impl io::Read) -> bool {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    one.read_to_end(&mut left).is_ok() && other.read_to_end(&mut right).is_ok() && left == right
}

//! Writes and compares the directory trees of an installation.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Component, Path};

use anyhow::Result;
use runtime_config::{Error as HostError, HostEntry};

use crate::class_index::is_index_name;
use crate::manifest;
use crate::payload::Payload;

/// Copies the files of a payload into the new directory `target_dir`, and flushes its files and
/// directories to disk.
pub(crate) fn copy_payload(payload: &Payload, target_dir: &HostEntry) -> Result<()> {
    target_dir.make_dir()?;
    for dir in payload.dirs() {
        open_path_in_dir(target_dir, dir)?.make_dir()?;
    }
    for file in payload.files() {
        let mut source = file.open()?;
        let entry = open_path_in_dir(target_dir, Path::new(file.dir))?.child(&file.name)?;
        entry.create_file(file.mode, |copy| io::copy(&mut source, copy).map(drop))?;
    }
    for dir in payload.dirs() {
        open_path_in_dir(target_dir, dir)?.child(".")?.sync_dir()?;
    }
    Ok(target_dir.child(".")?.sync_dir()?)
}

/// Makes the directory `top_dir` with one file, and flushes both to disk. `path_in_tree` is the
/// path of the file relative to `top_dir`. Also makes the directories in this path.
pub(crate) fn write_tree(top_dir: &HostEntry, path_in_tree: &Path, text: &str) -> Result<()> {
    top_dir.make_dir()?;
    let mut entry = top_dir.clone();
    let mut made_entries = vec![];
    for name in path_in_tree.components().filter_map(get_normal_name) {
        if !made_entries.is_empty() {
            entry.make_dir()?;
        }
        entry = entry.child(name)?;
        made_entries.push(entry.clone());
    }
    entry.create_file(manifest::STATE_FILE_MODE, |file| {
        file.write_all(text.as_bytes())
    })?;
    made_entries
        .iter()
        .rev()
        .try_for_each(HostEntry::sync_dir)?;
    Ok(())
}

/// Returns the entry at a path relative to the directory `dir`. Symbolic links are not followed.
fn open_path_in_dir(dir: &HostEntry, path: &Path) -> Result<HostEntry, HostError> {
    let mut names = path.components().filter_map(get_normal_name);
    names.try_fold(dir.clone(), |entry, name| entry.child(name))
}

fn get_normal_name(component: Component<'_>) -> Option<&std::ffi::OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }
}

/// Returns whether the directory `top_dir` is an exact copy of a payload. Each file must have the
/// right bytes and mode and belong to this user, and there must be no other files. The class index,
/// which is not part of a payload, is ignored. If a file cannot be read, the result is false.
pub(crate) fn is_payload_copy(top_dir: &HostEntry, payload: &Payload) -> bool {
    let compare_trees = || -> Result<bool, HostError> {
        let dirs = payload.dirs();
        // The listings also contain the subdirectories, so the expected count includes them.
        let mut expected_count = dirs
            .iter()
            .filter(|dir| dir.components().count() > 1)
            .count();
        expected_count += payload.files().count();
        let mut listed_count = 0;
        for dir in dirs {
            let is_payload_name = |name: &OsString| !is_index_name(dir, name);
            let dir = open_path_in_dir(top_dir, dir)?;
            if !has_own_uid_and_mode(&dir, 0o40755)? {
                return Ok(false);
            }
            listed_count += dir.list()?.into_iter().filter(is_payload_name).count();
        }
        for file in payload.files() {
            let copy = open_path_in_dir(top_dir, Path::new(file.dir))?.child(&file.name)?;
            if !has_own_uid_and_mode(&copy, 0o100_000 | file.mode)?
                || !have_same_bytes(&mut copy.open_file()?, file.open()?)
            {
                return Ok(false);
            }
        }
        Ok(listed_count == expected_count && has_own_uid_and_mode(top_dir, 0o40755)?)
    };
    compare_trees().unwrap_or(false)
}

/// Returns whether a file belongs to this user and has the mode `mode`. As in `st_mode`, the mode
/// contains the file type and the permissions.
fn has_own_uid_and_mode(entry: &HostEntry, mode: u32) -> Result<bool, HostError> {
    let own_uid = nix::unistd::geteuid().as_raw();
    let stat = entry.stat()?;
    Ok(stat.is_some_and(|stat| stat.st_mode == mode && stat.st_uid == own_uid))
}

fn have_same_bytes(copy: &mut impl io::Read, mut source: impl io::Read) -> bool {
    let (mut copied_bytes, mut source_bytes) = (Vec::new(), Vec::new());
    copy.read_to_end(&mut copied_bytes).is_ok()
        && source.read_to_end(&mut source_bytes).is_ok()
        && copied_bytes == source_bytes
}

//! Writes the class index beside the class files of an installed version. With the index, the hook
//! need not parse class files. The index has the times of the files, so that it is written after
//! everything else: a new SELinux label changes the time of a file's status.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use device_class::load::{CLASS_INDEX_NAME, ClassFile, build_index};
use nix::fcntl::RenameFlags;
use nix::unistd::geteuid;
use runtime_config::{Error as HostError, HostEntry};

use crate::host::Host;
use crate::payload::{CLASSES_DIR, Payload};

/// The time between the last change of a class file and the writing of the index. The clock of a
/// file system advances with the kernel's timer, which has at least 100 Hz. The index must be
/// newer than the class files; see [`build_index`].
const CLOCK_TICK: Duration = Duration::from_millis(20);

const INDEX_MODE: u32 = 0o644;

/// The name of an index that is being written. It is then renamed, so that no program reads a part
/// of it.
const NEW_INDEX_NAME: &str = ".classes.json.new";

/// Writes the index of an installed version, unless it has one of its class files as they are now.
/// The index of a payload without class files is not written.
///
/// # Errors
/// The index cannot be written, for example because the directory is on a read-only mount. The
/// installation works without it.
pub fn update_class_index(host: &Host, payload: &Payload) -> Result<()> {
    let version_dir = host.version_dir(&payload.version);
    let classes_dir = host.resolve_nofollow(&version_dir.join(CLASSES_DIR))?;
    let files = list_class_files(payload, &classes_dir)?;
    let index = classes_dir.child(CLASS_INDEX_NAME)?;
    if files.is_empty() || is_current(&index, &files) {
        return Ok(());
    }
    sleep(CLOCK_TICK);
    let text = build_index(&files);
    let new_index = index.sibling(NEW_INDEX_NAME);
    new_index.remove_all()?;
    let written = new_index
        .create_file(INDEX_MODE, |file| file.write_all(text.as_bytes()))
        .and_then(|()| new_index.rename(&index, RenameFlags::empty()));
    if let Err(error) = written {
        // It does no harm if it stays: the next installation removes it.
        let _ = new_index.remove_all();
        return Err(error.into());
    }
    Ok(index.sync_dir()?)
}

/// Returns whether a file in the directory `dir` of an installed version is a class index, or one
/// that is being written.
pub(crate) fn is_index_name(dir: &Path, name: &OsStr) -> bool {
    dir == Path::new(CLASSES_DIR)
        && [CLASS_INDEX_NAME, NEW_INDEX_NAME]
            .iter()
            .any(|it| name == *it)
}

/// Returns whether an index is that of the class files as they are now, and only this user can
/// change it. If it cannot be read, the result is false.
fn is_current(index: &HostEntry, files: &[ClassFile]) -> bool {
    let has_mode = index.stat().ok().flatten().is_some_and(|stat| {
        stat.st_mode == 0o100_000 | INDEX_MODE && stat.st_uid == geteuid().as_raw()
    });
    let mut text = String::new();
    let read = index
        .open_file()
        .map(|mut file| file.read_to_string(&mut text));
    has_mode && matches!(read, Ok(Ok(_))) && text == build_index(files)
}

/// Returns the class files of a payload with the metadata of their copies in `classes_dir`.
fn list_class_files(
    payload: &Payload,
    classes_dir: &HostEntry,
) -> Result<Vec<ClassFile>, HostError> {
    let mut files = Vec::new();
    for file in payload.files().filter(|file| file.dir == CLASSES_DIR) {
        let copy = classes_dir.child(&file.name)?;
        let mut text = Vec::new();
        let read = file.open()?.read_to_end(&mut text);
        read.map_err(HostError::io(
            "read",
            &classes_dir.display_path().join(&file.name),
        ))?;
        // A class file that is not text has a mistake, which the programs report.
        let (Some(stat), Ok(text)) = (copy.stat()?, String::from_utf8(text)) else {
            continue;
        };
        files.push(ClassFile {
            name: file.name.clone(),
            text,
            stat,
        });
    }
    Ok(files)
}

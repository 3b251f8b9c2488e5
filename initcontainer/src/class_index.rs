//! Writes the class index, a JSON file beside the class files of an installed version, so that the
//! hook need not parse class files. The index contains the change times of the class files. It is
//! therefore written after all other steps: a new SELinux label, for example, changes these times.

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

/// The time to wait before the index is written. The index must be newer than the class files (see
/// [`build_index`]), and the kernel advances file times only with its timer tick. The tick has a
/// rate of at least 100 Hz, so 20 ms contain at least one.
const FILE_TIME_GRANULARITY: Duration = Duration::from_millis(20);

const INDEX_MODE: u32 = 0o644;

/// The temporary name of the index while it is written. The file is then renamed, so that no
/// program reads an incomplete index.
const NEW_INDEX_NAME: &str = ".classes.json.new";

/// Writes the index of an installed version. Does nothing if the existing index matches the class
/// files, or if the payload has no class files.
///
/// # Errors
/// Returns an error if the index cannot be written, for example because the directory is on a
/// read-only mount. Boathook works without the index, but containers start some milliseconds later.
pub fn update_class_index(host: &Host, payload: &Payload) -> Result<()> {
    let version_dir = host.version_dir(&payload.version);
    let classes_dir = host.resolve_nofollow(&version_dir.join(CLASSES_DIR))?;
    let files = list_class_files(payload, &classes_dir)?;
    let index = classes_dir.child(CLASS_INDEX_NAME)?;
    if files.is_empty() || is_current(&index, &files) {
        return Ok(());
    }
    sleep(FILE_TIME_GRANULARITY);
    let text = build_index(&files);
    let new_index = index.sibling(NEW_INDEX_NAME);
    new_index.remove_all()?;
    let result = new_index
        .create_file(INDEX_MODE, |file| file.write_all(text.as_bytes()))
        .and_then(|()| new_index.rename(&index, RenameFlags::empty()));
    if let Err(error) = result {
        // If the removal fails, the next installation removes the file, so this error is ignored.
        let _ = new_index.remove_all();
        return Err(error.into());
    }
    Ok(index.sync_dir()?)
}

/// Returns whether the file `name` in the directory `dir` of an installed version is the class
/// index or its temporary file.
pub(crate) fn is_index_name(dir: &Path, name: &OsStr) -> bool {
    dir == Path::new(CLASSES_DIR)
        && [CLASS_INDEX_NAME, NEW_INDEX_NAME]
            .iter()
            .any(|index_name| name == *index_name)
}

/// Returns whether the index on the host can be kept: its text is the one that `files` give now,
/// and only the current user can write to it. Returns false if the index cannot be read.
fn is_current(index: &HostEntry, files: &[ClassFile]) -> bool {
    let has_safe_mode = index.stat().ok().flatten().is_some_and(|stat| {
        stat.st_mode == 0o100_000 | INDEX_MODE && stat.st_uid == geteuid().as_raw()
    });
    let mut text = String::new();
    let read_result = index
        .open_file()
        .map(|mut file| file.read_to_string(&mut text));
    has_safe_mode && matches!(read_result, Ok(Ok(_))) && text == build_index(files)
}

/// Returns the class files of a payload, each with the text from the payload and the stat(2) data
/// of its installed copy in `classes_dir`.
fn list_class_files(
    payload: &Payload,
    classes_dir: &HostEntry,
) -> Result<Vec<ClassFile>, HostError> {
    let mut files = Vec::new();
    for file in payload.files().filter(|file| file.dir == CLASSES_DIR) {
        let copy = classes_dir.child(&file.name)?;
        let mut bytes = Vec::new();
        let read_result = file.open()?.read_to_end(&mut bytes);
        read_result.map_err(HostError::io(
            "read",
            &classes_dir.display_path().join(&file.name),
        ))?;
        // A class file that is not UTF-8 is left out. The programs that read the file itself report
        // the error.
        let (Some(stat), Ok(text)) = (copy.stat()?, String::from_utf8(bytes)) else {
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

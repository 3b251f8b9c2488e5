//! Writes the class index beside the class files of an installed version. With the index, the hook
//! need not parse class files.

use std::io::{Read, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use device_class::load::{CLASS_INDEX_NAME, ClassFile, build_index};
use runtime_config::{Error as HostError, HostEntry};

use crate::payload::{CLASSES_DIR, Payload};

/// The time between the last change of a class file and the writing of the index. The clock of a
/// file system advances with the kernel's timer, which has at least 100 Hz. The index must be
/// newer than the class files; see [`build_index`].
const CLOCK_TICK: Duration = Duration::from_millis(20);

const INDEX_MODE: u32 = 0o644;

/// Writes the index of the class files in the new directory `classes_dir`. A payload without class
/// files gets no index.
pub(crate) fn write_class_index(payload: &Payload, classes_dir: &HostEntry) -> Result<()> {
    let files = list_class_files(payload, classes_dir)?;
    if files.is_empty() {
        return Ok(());
    }
    sleep(CLOCK_TICK);
    let index = classes_dir.child(CLASS_INDEX_NAME)?;
    let text = build_index(&files);
    Ok(index.create_file(INDEX_MODE, |file| file.write_all(text.as_bytes()))?)
}

/// Returns the names of the index files that [`write_class_index`] writes into the directory `dir`
/// of an installed version.
pub(crate) fn list_index_names(payload: &Payload, dir: &Path) -> &'static [&'static str] {
    let has_classes = !payload.class_file_names().is_empty();
    if has_classes && dir == Path::new(CLASSES_DIR) {
        &[CLASS_INDEX_NAME]
    } else {
        &[]
    }
}

/// Returns whether the index in `classes_dir` is that of the class files as they are now. Without
/// class files there is no index.
pub(crate) fn is_class_index_current(
    payload: &Payload,
    classes_dir: &HostEntry,
) -> Result<bool, HostError> {
    let files = list_class_files(payload, classes_dir)?;
    if files.is_empty() {
        return Ok(true);
    }
    let mut text = String::new();
    let mut index = classes_dir.child(CLASS_INDEX_NAME)?.open_file()?;
    let read = index.read_to_string(&mut text);
    Ok(read.is_ok() && text == build_index(&files))
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

//! Finds out which containers request the class of an unusable file: a file that has a mistake,
//! cannot be read, or can be changed by users other than root.
//!
//! These containers are refused, and no others. A container can request a class by its name, which
//! is the name of the file, or by its variable. A variable counts only if a file that only root can
//! change names it as the request variable of the class. Otherwise a single file could stop every
//! container of the host.

use std::path::{Path, PathBuf};

use rooted_path::RegularFile;

use super::{ClassSource, Directory, MAX_FILE_BYTES};
use crate::class;
use crate::strict_toml::FileError;

/// The endings of variables that list devices, such as `NPU_VISIBLE_DEVICES`. A class file that
/// users other than root can change may name any variable, such as `PATH`, so its variable is used
/// only if the name ends with one of these words.
const DEVICE_SUFFIXES: [&str; 4] = ["DEVICES", "CARDS", "CHANNELS", "CORES"];

/// Returns whether the name of a variable ends like those of variables that list devices.
pub fn is_device_list_variable(variable: &str) -> bool {
    DEVICE_SUFFIXES
        .iter()
        .any(|suffix| variable.ends_with(suffix))
}

/// The maximum number of bytes that are read from a class file that users other than root can
/// change. The limit bounds the time by which such a user can delay the start of every container.
const MAX_UNTRUSTED_BYTES: u64 = 64 << 10;

/// Returns whether a container requests the class of `file` by a variable. `file` is an unusable
/// file in one of `directories`, `sources` are all class files, and `is_set` returns whether the
/// container has a variable.
///
/// The variable is read from the file, even if it has mistakes. If users other than root can change
/// the file, or if it has no variable, the variable of the file that it masks is used. If no file
/// is masked, the variable of a file that other users can change is used only if
/// [`is_device_list_variable`] accepts it and no usable class has it.
pub fn is_requested_by_variable(
    file: &Path,
    directories: &[PathBuf],
    sources: &[Result<ClassSource, FileError>],
    is_set: impl Fn(&str) -> bool,
) -> bool {
    let trusted_variable =
        find_trusted_variable(file).or_else(|| find_masked_variable(file, directories));
    if let Some(variable) = trusted_variable {
        return is_set(&variable);
    }
    find_untrusted_variable(file).is_some_and(|variable| {
        is_set(&variable)
            && is_device_list_variable(&variable)
            && !has_usable_class(&variable, sources)
    })
}

/// Returns the request variable in a file that only root can change. Returns `None` for any other
/// file, and for a file without a request variable.
fn find_trusted_variable(path: &Path) -> Option<String> {
    let directory = Directory::open(path.parent()?)?;
    let file = directory.open_file(path.file_name()?).ok()?;
    read_variable(file, MAX_FILE_BYTES)
}

/// Returns the request variable of the file that `file` masks: the nearest file of the same
/// name in an earlier directory that only root can change.
fn find_masked_variable(file: &Path, directories: &[PathBuf]) -> Option<String> {
    let (directory, name) = (file.parent()?, file.file_name()?);
    let reversed_directories = directories.iter().rev();
    let mut earlier_directories = reversed_directories
        .skip_while(|path| *path != directory)
        .skip(1);
    earlier_directories.find_map(|path| find_trusted_variable(&path.join(name)))
}

/// Returns the request variable in a file that users other than root can change.
fn find_untrusted_variable(path: &Path) -> Option<String> {
    read_variable(RegularFile::open(path).ok()?, MAX_UNTRUSTED_BYTES)
}

fn read_variable(file: RegularFile, max_bytes: u64) -> Option<String> {
    let bytes = file.read(max_bytes).ok()?;
    class::find_request_variable(&String::from_utf8_lossy(&bytes))
}

/// Returns whether one of the usable classes has this request variable.
fn has_usable_class(variable: &str, sources: &[Result<ClassSource, FileError>]) -> bool {
    let candidates = sources.iter().flatten();
    let mut candidates =
        candidates.filter(|source| source.may_be_requested(|name| name == variable));
    candidates.any(|source| {
        let class = source.parse();
        class.is_ok_and(|class| class.spec.request.env.as_str() == variable)
    })
}

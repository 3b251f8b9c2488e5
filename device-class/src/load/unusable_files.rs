//! Finds out whether a container requests the class of an unusable class file. A file is unusable
//! if it has a mistake, cannot be read, or can be changed by users other than root.
//!
//! Only such a container is refused. A container requests a class by its name, which is the name of
//! the file, or with an environment variable that the class file names. Usually only the variable
//! in a file that nobody but root can change counts. Otherwise a single file of another user could
//! stop every container of the host.

use std::path::{Path, PathBuf};

use host_files::rooted_path::RegularFile;

use super::{ClassDirectory, ClassSource, MAX_FILE_BYTES};
use crate::class;
use crate::strict_toml::FileError;

/// The last words of variables that list devices, such as `NPU_VISIBLE_DEVICES`. An untrusted class
/// file, which users other than root can change, may name any variable, such as `PATH`. So its
/// variable is used only if the name ends with one of these words.
const DEVICE_SUFFIXES: [&str; 4] = ["DEVICES", "CARDS", "CHANNELS", "CORES"];

/// Returns whether the name of a variable ends like the variables that list devices.
pub fn is_device_list_variable(variable: &str) -> bool {
    DEVICE_SUFFIXES
        .iter()
        .any(|suffix| variable.ends_with(suffix))
}

/// The maximum number of bytes that are read from a class file that users other than root can
/// change. Without the limit, such a user could delay the start of every container with a large
/// file.
const MAX_UNTRUSTED_BYTES: u64 = 64 << 10;

/// Returns whether a container requests the class of the unusable file `file` with a variable. The
/// file is in one of `directories`. `sources` are all class files. `is_set` returns whether a
/// variable is set in the container.
///
/// The variable is read from the file, even if the file has mistakes. If the file is untrusted
/// (users other than root can change it) or has no variable, the variable of the file that it
/// replaces is used. If there is none, the variable of an untrusted file is used only if
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

/// Returns the request variable that a class file names. Returns `None` if users other than root
/// can change the file, or if the file has no request variable.
fn find_trusted_variable(path: &Path) -> Option<String> {
    let directory = ClassDirectory::open(path.parent()?)?;
    let file = directory.open_file(path.file_name()?).ok()?;
    read_variable(file, MAX_FILE_BYTES)
}

/// Returns the request variable of the file that `file` replaces. Earlier directories are searched,
/// the nearest one first, for a file with the same name that has a request variable and that only
/// root can change.
fn find_masked_variable(file: &Path, directories: &[PathBuf]) -> Option<String> {
    let (directory, name) = (file.parent()?, file.file_name()?);
    let reversed_directories = directories.iter().rev();
    let mut earlier_directories = reversed_directories
        .skip_while(|path| *path != directory)
        .skip(1);
    earlier_directories.find_map(|path| find_trusted_variable(&path.join(name)))
}

/// Returns the request variable that a class file names, without checking who can change the file.
fn find_untrusted_variable(path: &Path) -> Option<String> {
    read_variable(RegularFile::open(path).ok()?, MAX_UNTRUSTED_BYTES)
}

fn read_variable(file: RegularFile, max_bytes: u64) -> Option<String> {
    let bytes = file.read(max_bytes).ok()?;
    class::find_request_variable(&String::from_utf8_lossy(&bytes))
}

/// Returns whether one of the usable classes has this request variable, so that an untrusted file
/// must not take it.
fn has_usable_class(variable: &str, sources: &[Result<ClassSource, FileError>]) -> bool {
    let candidates = sources.iter().flatten();
    let mut candidates =
        candidates.filter(|source| source.may_be_requested(|name| name == variable));
    candidates.any(|source| {
        let class = source.parse();
        class.is_ok_and(|class| class.spec.request.env.as_str() == variable)
    })
}

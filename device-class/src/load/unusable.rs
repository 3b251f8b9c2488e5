//! Decides which containers request the class of an unusable file: a file that has a mistake,
//! cannot be read, or can be changed by others than root.
//!
//! Such a file stops these containers and no others. Each container can name a class by its name,
//! which is that of the file. A variable counts only if a file that root alone can change says that
//! it is the request variable of the class. Otherwise a single file could stop every container of
//! the host.

use std::path::{Path, PathBuf};

use rooted_path::RegularFile;

use super::{ClassSource, Directory, MAX_FILE};
use crate::class;
use crate::strict_toml::FileError;

/// The last words of names of variables that list devices, such as `NPU_VISIBLE_DEVICES`. A class
/// file that users other than root can change may name any variable, such as `PATH`. It is believed
/// only if the name ends with one of these words.
const DEVICE_NOUNS: [&str; 4] = ["DEVICES", "CARDS", "CHANNELS", "CORES"];

/// Returns whether a variable has the form of variables that list devices.
pub fn has_request_form(variable: &str) -> bool {
    DEVICE_NOUNS.iter().any(|noun| variable.ends_with(noun))
}

/// The number of bytes that are read from a class file that users other than root can change. It
/// bounds the time by which such a user can delay the start of every container.
const MAX_UNTRUSTED_TEXT: u64 = 64 << 10;

/// Returns whether a container with the variables for which `is_set` holds requests the class of
/// `file`, an unusable file in one of `directories`. `sources` are all class files.
///
/// The variable is read from the file as far as the file can be parsed. If others than root can
/// change the file, or if it has no variable, the variable is that of the masked file of the same
/// name. If no file is masked, the variable of a file that others can change counts only if it has
/// the form of request variables and no usable class has it.
pub fn is_requested_by_variable(
    file: &Path,
    directories: &[PathBuf],
    sources: &[Result<ClassSource, FileError>],
    is_set: impl Fn(&str) -> bool,
) -> bool {
    let proved = trusted_variable(file).or_else(|| masked_variable(file, directories));
    if let Some(variable) = proved {
        return is_set(&variable);
    }
    untrusted_variable(file).is_some_and(|variable| {
        is_set(&variable) && has_request_form(&variable) && !has_usable_class(&variable, sources)
    })
}

/// Returns the request variable in a file that only root can change, and `None` for any other
/// file.
fn trusted_variable(path: &Path) -> Option<String> {
    let directory = Directory::open(path.parent()?)?;
    let file = directory.open_file(path.file_name()?).ok()?;
    read_variable(file, MAX_FILE)
}

/// Returns the request variable of the file that `file` masks: the nearest file of the same
/// name in an earlier directory that only root can change.
fn masked_variable(file: &Path, directories: &[PathBuf]) -> Option<String> {
    let (directory, name) = (file.parent()?, file.file_name()?);
    let later_first = directories.iter().rev();
    let mut masked = later_first.skip_while(|path| *path != directory).skip(1);
    masked.find_map(|path| trusted_variable(&path.join(name)))
}

/// Returns the request variable in a file that others can change.
fn untrusted_variable(path: &Path) -> Option<String> {
    read_variable(RegularFile::open(path).ok()?, MAX_UNTRUSTED_TEXT)
}

fn read_variable(file: RegularFile, max: u64) -> Option<String> {
    let bytes = file.read(max).ok()?;
    class::request_variable(&String::from_utf8_lossy(&bytes))
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

//! Which containers request the class of a file that cannot be used, because it has a mistake,
//! cannot be read, or can be changed by others than root.
//!
//! Such a file stops these containers and no others. Each container can name a class by its
//! name, which is that of the file. A variable counts only where something that root alone can
//! change says that it is the one of the class; otherwise a single file could stop every
//! container of the host.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{ClassSource, Directory, MAX_FILE};
use crate::class;
use crate::strict_toml::FileError;

/// The last words of the variables that list devices. A file that others can change may name
/// any variable, such as `PATH`, but it is believed only with one of these.
const DEVICE_NOUNS: [&str; 4] = ["DEVICES", "CARDS", "CHANNELS", "CORES"];

/// Whether a container with the variables for which `is_set` holds requests the class of this
/// file in one of `directories`, which cannot be used. `sources` are all class files.
///
/// The variable is that of the file as far as it can be parsed. If others than root can change
/// it, or it has no variable, the file of the same name that it masks has the variable. If it
/// masks none, the variable in a file that others can change counts if it has the form of
/// request variables, and if no class that can be used has it.
pub fn is_requested_by_variable(
    file: &Path,
    directories: &[PathBuf],
    sources: &[Result<ClassSource, FileError>],
    is_set: impl Fn(&str) -> bool,
) -> bool {
    let (own, is_trusted) = read_variable(file).unwrap_or((None, false));
    let is_own_set = own.as_deref().is_some_and(&is_set);
    if is_trusted && own.is_some() {
        return is_own_set;
    }
    if let Some(masked) = masked_variable(file, directories) {
        return is_set(&masked);
    }
    own.filter(|_| is_own_set).is_some_and(|variable| {
        let has_form = DEVICE_NOUNS.iter().any(|noun| variable.ends_with(noun));
        has_form && !has_usable_class(&variable, sources)
    })
}

/// The request variable in a file, if it can be read, and whether root alone can change it.
fn read_variable(path: &Path) -> Option<(Option<String>, bool)> {
    let directory = Directory::open(path.parent()?)?;
    let (file, fault) = directory.file(path.file_name()?);
    let mut bytes = Vec::new();
    file.ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    let text: Cow<'_, str> = String::from_utf8_lossy(&bytes);
    Some((class::request_variable(&text), fault.is_none()))
}

/// The variable of the nearest file of the same name in an earlier directory that root alone
/// can change.
fn masked_variable(file: &Path, directories: &[PathBuf]) -> Option<String> {
    let (directory, name) = (file.parent()?, file.file_name()?);
    let later_first = directories.iter().rev();
    let mut masked = later_first.skip_while(|path| *path != directory).skip(1);
    masked.find_map(|path| match read_variable(&path.join(name))? {
        (variable, true) => variable,
        (_, false) => None,
    })
}

/// Whether one of the classes that can be used has this request variable.
fn has_usable_class(variable: &str, sources: &[Result<ClassSource, FileError>]) -> bool {
    let candidates = sources.iter().flatten();
    let mut candidates =
        candidates.filter(|source| source.may_be_requested(|name| name == variable));
    candidates.any(|source| {
        let class = source.parse();
        class.is_ok_and(|class| class.spec.request.env.as_str() == variable)
    })
}

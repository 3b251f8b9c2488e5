//! Checks that the path of a library directory can be written to the configuration file of a
//! dynamic loader.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A library directory in the container. Its path has no special characters, because the
/// configuration files of glibc and musl have no syntax to quote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LibraryDir(PathBuf);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryDirError {
    /// The path is relative. A dynamic loader would resolve it in the working directory of the
    /// program.
    #[error("library directory {} is not an absolute path; give one that starts with /", .0.display())]
    RelativePath(PathBuf),
    /// The path contains a byte that has a special meaning in a loader's configuration file, such
    /// as `:`.
    #[error(
        "library directory {} contains a blank, a control character or one of # = :, which no \
         loader's configuration can express; choose another name", .0.display()
    )]
    SpecialCharacter(PathBuf),
}

impl LibraryDir {
    /// Checks the path. Fails if it is relative, or contains a blank, a control character, `#` (a
    /// comment in `ld.so.conf`), `=` (a library type in `ld.so.conf`) or `:` (a separator for
    /// musl).
    pub(crate) fn new(path: impl Into<PathBuf>) -> Result<Self, LibraryDirError> {
        let path = path.into();
        if !path.is_absolute() {
            return Err(LibraryDirError::RelativePath(path));
        }
        let is_special = |byte: &u8| *byte <= b' ' || matches!(byte, b'#' | b'=' | b':' | 0x7f);
        if path.as_os_str().as_bytes().iter().any(is_special) {
            return Err(LibraryDirError::SpecialCharacter(path));
        }
        Ok(Self(path))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }
}

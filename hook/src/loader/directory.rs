//! A library directory that the configuration of a loader can name.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A library directory in the container whose path can be written to the configuration of
/// every loader. The configuration files of glibc and musl support no quoting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LibraryDir(PathBuf);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LibraryDirError {
    /// The path is relative. A loader would resolve it against the working directory.
    #[error("library directory {} is not an absolute path; give one that starts with /", .0.display())]
    Relative(PathBuf),
    /// The path contains a byte that has a special meaning in a configuration file.
    #[error(
        "library directory {} contains a blank, a control character or one of # = :, which no \
         loader's configuration can express; choose another name", .0.display()
    )]
    Inexpressible(PathBuf),
}

impl LibraryDir {
    /// Checks `path`.
    ///
    /// # Errors
    ///
    /// The path is relative, or has a blank, a control character, `#` (a comment in
    /// `ld.so.conf`), `=` (a library type in `ld.so.conf`) or `:` (a separator for musl).
    pub(crate) fn new(path: impl Into<PathBuf>) -> Result<Self, LibraryDirError> {
        let path = path.into();
        if !path.is_absolute() {
            return Err(LibraryDirError::Relative(path));
        }
        let speaks = |byte: &u8| *byte <= b' ' || matches!(byte, b'#' | b'=' | b':' | 0x7f);
        if path.as_os_str().as_bytes().iter().any(speaks) {
            return Err(LibraryDirError::Inexpressible(path));
        }
        Ok(Self(path))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }
}

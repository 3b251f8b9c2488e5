//! The errors for a loader's cache that cannot be read or written.

use super::{MAX_ENTRIES, MAX_SIZE};

/// The reason why a loader's cache cannot be read or written. The message does not name the
/// file, so the caller adds the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LdCacheError {
    /// The file is, or would become, longer than [`MAX_SIZE`].
    #[error("loader cache of {0} bytes is over the limit of {MAX_SIZE}")]
    TooLarge(usize),
    /// Neither of the format's two magic strings is present.
    #[error("not a loader cache: the magic string is missing; rebuild it with ldconfig")]
    NotACache,
    /// The file has only the format of libc5 and glibc 2.0.
    #[error("loader cache has only the format of glibc before 2.2; rebuild it with ldconfig")]
    OldFormat,
    #[error("loader cache was made for a big-endian machine; rebuild it with ldconfig on this one")]
    ForeignByteOrder,
    /// The header marks the file as not to be used.
    #[error("loader cache is marked invalid; rebuild it with ldconfig")]
    MarkedInvalid,
    /// The file ends before the header or the table of entries does.
    #[error("loader cache is cut off: its {0} runs past the end; rebuild it with ldconfig")]
    CutOff(&'static str),
    /// The header counts more than [`MAX_ENTRIES`].
    #[error("loader cache of {0} entries is over the limit of {MAX_ENTRIES}")]
    TooManyEntries(usize),
    /// A string's offset points outside the file, or no NUL follows within the limit.
    #[error(
        "loader cache has no string of at most {max} bytes at offset {offset}; \
         rebuild it with ldconfig"
    )]
    BadString {
        offset: usize,
        /// The limit, in bytes with the NUL.
        max: usize,
    },
    /// The extension directory, or a section that it names, is malformed.
    #[error("loader cache has malformed extensions: {0}; rebuild it with ldconfig")]
    BadExtension(&'static str),
}

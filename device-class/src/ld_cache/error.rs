//! The errors for a loader's cache that cannot be read or written.

use super::{MAX_CACHE_BYTES, MAX_ENTRIES};

/// The reason why a loader's cache cannot be read or written. The message does not name the
/// file, so the caller adds the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LdCacheError {
    /// The file is, or would become, longer than [`MAX_CACHE_BYTES`].
    #[error("loader cache of {0} bytes is over the limit of {MAX_CACHE_BYTES}")]
    TooLarge(usize),
    /// The file begins with neither of the two magic strings.
    #[error("not a loader cache: the magic string is missing; rebuild it with ldconfig")]
    NotACache,
    /// The file has only the format of libc5 and glibc 2.0.
    #[error("loader cache has only the format of glibc before 2.2; rebuild it with ldconfig")]
    OldFormat,
    #[error("loader cache was made for a big-endian machine; rebuild it with ldconfig on this one")]
    ForeignByteOrder,
    /// The header marks the file as invalid.
    #[error("loader cache is marked invalid; rebuild it with ldconfig")]
    MarkedInvalid,
    /// The file ends within the header or the table of entries.
    #[error("loader cache is cut off: its {0} runs past the end; rebuild it with ldconfig")]
    CutOff(&'static str),
    /// The header declares more than [`MAX_ENTRIES`] entries.
    #[error("loader cache of {0} entries is over the limit of {MAX_ENTRIES}")]
    TooManyEntries(usize),
    /// The offset of a string is outside the file, or the string has no NUL within the limit.
    #[error(
        "loader cache has no string of at most {max_length} bytes at offset {offset}; \
         rebuild it with ldconfig"
    )]
    BadString {
        offset: usize,
        /// The maximum length of the string in bytes, with the NUL.
        max_length: usize,
    },
    /// The extension directory, or a section that it names, is malformed.
    #[error("loader cache has malformed extensions: {0}; rebuild it with ldconfig")]
    BadExtension(&'static str),
}

//! The reasons why ld.so.cache cannot be read or written.

use super::{MAX_CACHE_BYTES, MAX_ENTRIES};

/// The reason why ld.so.cache cannot be read or written. The message does not name the file, so the
/// caller has to add its path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LdCacheError {
    /// The file has, or would get, more than [`MAX_CACHE_BYTES`] bytes.
    #[error("loader cache of {0} bytes is over the limit of {MAX_CACHE_BYTES}")]
    TooLarge(usize),
    /// The file does not begin with the magic string of the newer or of the older format.
    #[error("not a loader cache: the magic string is missing; rebuild it with ldconfig")]
    NotACache,
    /// The file has only the older format, for libc5 and glibc 2.0.
    #[error("loader cache has only the format of glibc before 2.2; rebuild it with ldconfig")]
    OldFormat,
    #[error("loader cache was made for a big-endian machine; rebuild it with ldconfig on this one")]
    ForeignByteOrder,
    /// The header has a value that marks the file as invalid, in the place of the byte order.
    #[error("loader cache is marked invalid; rebuild it with ldconfig")]
    MarkedInvalid,
    /// The file ends inside the header or inside the table of entries.
    #[error("loader cache is cut off: its {0} runs past the end; rebuild it with ldconfig")]
    CutOff(&'static str),
    /// According to its header, the file has more than [`MAX_ENTRIES`] entries.
    #[error("loader cache of {0} entries is over the limit of {MAX_ENTRIES}")]
    TooManyEntries(usize),
    /// The offset of a string is outside the file, or there is no NUL within the maximum length.
    #[error(
        "loader cache has no string of at most {max_length} bytes at offset {offset}; \
         rebuild it with ldconfig"
    )]
    BadString {
        offset: usize,
        /// The maximum length of the string in bytes, including the NUL.
        max_length: usize,
    },
    /// The extension directory is malformed, or one of its sections is.
    #[error("loader cache has malformed extensions: {0}; rebuild it with ldconfig")]
    BadExtension(&'static str),
}

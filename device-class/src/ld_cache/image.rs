//! Checked reads from a cache's bytes.

use std::ffi::CStr;

use super::{LdCacheError, work};

/// The bytes that offsets count from. A read outside of them returns `None`.
#[derive(Clone, Copy)]
pub(super) struct Image<'a>(pub(super) &'a [u8]);

impl<'a> Image<'a> {
    /// `N` bytes from `offset`, or `None` past the end.
    pub(super) fn bytes<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    /// A little-endian number of 32 bits.
    pub(super) fn u32(self, offset: usize) -> Option<u32> {
        self.bytes(offset).map(u32::from_le_bytes)
    }

    /// The NUL-terminated string at `offset`, of at most `max` bytes with its NUL.
    pub(super) fn string(self, offset: u32, max: usize) -> Result<&'a CStr, LdCacheError> {
        let offset = offset as usize;
        let bad = LdCacheError::BadString { offset, max };
        let tail = self.0.get(offset..).ok_or_else(|| bad.clone())?;
        let string = CStr::from_bytes_until_nul(&tail[..tail.len().min(max)]).map_err(|_| bad)?;
        work::done(string.count_bytes() + 1);
        Ok(string)
    }
}

//! Reads numbers and strings of a cache file. The file may come from an untrusted image, so each
//! offset is checked.

use std::ffi::CStr;

use super::{LdCacheError, work};

/// The bytes of a file from the header of the newer format to the end. Offsets of strings count
/// from this header. Reading past the end returns `None`.
#[derive(Clone, Copy)]
pub(super) struct CacheBytes<'a>(pub(super) &'a [u8]);

impl<'a> CacheBytes<'a> {
    /// Returns `N` bytes from `offset` on, or `None` if the file ends before.
    pub(super) fn read_bytes<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    /// Reads the little-endian 32-bit number at `offset`, or returns `None` if the file ends before
    /// it.
    pub(super) fn read_u32(self, offset: usize) -> Option<u32> {
        self.read_bytes(offset).map(u32::from_le_bytes)
    }

    /// Reads the NUL-terminated string at `offset`. It may have at most `max_length` bytes,
    /// including the NUL.
    pub(super) fn read_string(
        self,
        offset: u32,
        max_length: usize,
    ) -> Result<&'a CStr, LdCacheError> {
        let offset = offset as usize;
        let error = LdCacheError::BadString { offset, max_length };
        let bytes_from_offset = self.0.get(offset..).ok_or_else(|| error.clone())?;
        let string = CStr::from_bytes_until_nul(
            &bytes_from_offset[..bytes_from_offset.len().min(max_length)],
        )
        .map_err(|_| error)?;
        work::add_bytes(string.count_bytes() + 1);
        Ok(string)
    }
}

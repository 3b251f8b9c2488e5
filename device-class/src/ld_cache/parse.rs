//! Parses the bytes of a loader's cache.

use std::ffi::CStr;

use super::{
    ENTRY_SIZE, Entry, Flags, HEADER_SIZE, LdCache, LdCacheError, MAGIC, MAX_ENTRIES, MAX_NAME,
    MAX_PATH, MAX_SIZE, extension, work,
};

/// The older format, which may precede the newer one in a file: the magic string, the number of
/// entries at offset 12, and entries of 12 bytes from offset 16.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const OLD_HEADER_SIZE: usize = 16;
const OLD_ENTRY_SIZE: usize = 12;

/// The header's byte-order field: the low two bits of the flags byte (since glibc 2.33).
const BYTE_ORDER_MASK: u8 = 3;
const BYTE_ORDER_INVALID: u8 = 1;
const BYTE_ORDER_BIG: u8 = 3;

/// The bytes of the newer format. Offsets in the file count from their beginning. A read past
/// their end returns `None`.
#[derive(Clone, Copy)]
pub(super) struct Image<'a>(pub(super) &'a [u8]);

impl<'a> Image<'a> {
    /// Returns `N` bytes from `offset`, or `None` if fewer bytes are left.
    pub(super) fn bytes<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    /// Reads a little-endian number of 32 bits.
    pub(super) fn u32(self, offset: usize) -> Option<u32> {
        self.bytes(offset).map(u32::from_le_bytes)
    }

    /// Reads the NUL-terminated string at `offset`, of at most `max` bytes including the NUL.
    pub(super) fn string(self, offset: u32, max: usize) -> Result<&'a CStr, LdCacheError> {
        let offset = offset as usize;
        let bad = LdCacheError::BadString { offset, max };
        let tail = self.0.get(offset..).ok_or_else(|| bad.clone())?;
        let string = CStr::from_bytes_until_nul(&tail[..tail.len().min(max)]).map_err(|_| bad)?;
        work::done(string.count_bytes() + 1);
        Ok(string)
    }
}

impl LdCache {
    /// Parses a cache in the format `glibc-ld.so.cache1.1`, alone or behind the older one.
    ///
    /// # Errors
    ///
    /// See [`LdCacheError`]. The result has at most [`MAX_ENTRIES`] entries, whose strings have
    /// at most [`MAX_SIZE`] bytes together.
    pub fn parse(file: &[u8]) -> Result<Self, LdCacheError> {
        if file.len() > MAX_SIZE {
            return Err(LdCacheError::TooLarge(file.len()));
        }
        let start = find_header(file)?;
        let image = Image(&file[start..]);
        let header: [u8; HEADER_SIZE] = image.bytes(0).ok_or(LdCacheError::CutOff("header"))?;
        match header[28] & BYTE_ORDER_MASK {
            BYTE_ORDER_INVALID => return Err(LdCacheError::MarkedInvalid),
            BYTE_ORDER_BIG => return Err(LdCacheError::ForeignByteOrder),
            // The field is little-endian, or not set, as before glibc 2.33.
            _ => {}
        }
        let entries = parse_entries(image)?;
        let extensions = extension::parse(file, image)?;
        Ok(Self {
            entries,
            generator: extensions.generator,
            hwcaps: extensions.hwcaps,
        })
    }
}

fn find_header(file: &[u8]) -> Result<usize, LdCacheError> {
    if file.starts_with(MAGIC) {
        return Ok(0);
    }
    if !file.starts_with(OLD_MAGIC) {
        return Err(LdCacheError::NotACache);
    }
    let count = Image(file)
        .u32(12)
        .ok_or(LdCacheError::CutOff("old header"))? as usize;
    let end = count
        .saturating_mul(OLD_ENTRY_SIZE)
        .saturating_add(OLD_HEADER_SIZE);
    // The header is aligned for its 64-bit numbers, unless it was written for i386.
    [end.saturating_add(7) & !7, end]
        .into_iter()
        .find(|start| {
            file.get(*start..)
                .is_some_and(|rest| rest.starts_with(MAGIC))
        })
        .ok_or(LdCacheError::OldFormat)
}

fn parse_entries(image: Image<'_>) -> Result<Vec<Entry>, LdCacheError> {
    const CUT_OFF: LdCacheError = LdCacheError::CutOff("table of entries");

    let count = image.u32(20).ok_or(CUT_OFF)? as usize;
    let table = &image.0[HEADER_SIZE..];
    if count > table.len() / ENTRY_SIZE {
        return Err(CUT_OFF);
    }
    if count > MAX_ENTRIES {
        return Err(LdCacheError::TooManyEntries(count));
    }
    let mut string_bytes = 0;
    let (table, _) = table[..count * ENTRY_SIZE].as_chunks();
    table
        .iter()
        .map(|raw| {
            let entry = parse_entry(image, raw)?;
            string_bytes += entry.soname.count_bytes() + entry.path.count_bytes() + 2;
            if string_bytes > MAX_SIZE {
                return Err(LdCacheError::TooLarge(string_bytes));
            }
            Ok(entry)
        })
        .collect()
}

fn parse_entry(image: Image<'_>, raw: &[u8; ENTRY_SIZE]) -> Result<Entry, LdCacheError> {
    let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    Ok(Entry {
        flags: Flags(word(0).cast_signed()),
        soname: image.string(word(4), MAX_NAME)?.into(),
        path: image.string(word(8), MAX_PATH)?.into(),
        os_version: word(12),
        hwcap: u64::from(word(20)) << 32 | u64::from(word(16)),
    })
}

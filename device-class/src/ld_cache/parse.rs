//! Parses the bytes of ld.so.cache, which may come from an untrusted image.

use super::image::CacheBytes;
use super::{
    ENTRY_SIZE, Entry, Flags, HEADER_SIZE, LdCache, LdCacheError, MAGIC, MAX_CACHE_BYTES,
    MAX_ENTRIES, MAX_NAME_BYTES, MAX_PATH_BYTES, extension,
};

/// The magic string of the older format. In a file, the older format may precede the newer one. It
/// has the number of entries at offset 12, and entries of 12 bytes from offset 16 on.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const OLD_HEADER_SIZE: usize = 16;
const OLD_ENTRY_SIZE: usize = 12;

/// The bits of the header's flags byte that contain the byte order (since glibc 2.33).
const BYTE_ORDER_MASK: u8 = 3;
const BYTE_ORDER_INVALID: u8 = 1;
const BYTE_ORDER_BIG: u8 = 3;

impl LdCache {
    /// Parses a cache in the format `glibc-ld.so.cache1.1`. The older format may precede it in the
    /// file.
    ///
    /// # Errors
    ///
    /// See [`LdCacheError`]. The result has at most [`MAX_ENTRIES`] entries, whose strings have
    /// at most [`MAX_CACHE_BYTES`] bytes together.
    pub fn parse(file: &[u8]) -> Result<Self, LdCacheError> {
        if file.len() > MAX_CACHE_BYTES {
            return Err(LdCacheError::TooLarge(file.len()));
        }
        let start = find_header(file)?;
        let image = CacheBytes(&file[start..]);
        let header: [u8; HEADER_SIZE] =
            image.read_bytes(0).ok_or(LdCacheError::CutOff("header"))?;
        match header[28] & BYTE_ORDER_MASK {
            BYTE_ORDER_INVALID => return Err(LdCacheError::MarkedInvalid),
            BYTE_ORDER_BIG => return Err(LdCacheError::ForeignByteOrder),
            // The byte order is little-endian, or it is not set, as in caches from before glibc
            // 2.33.
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
    let count = CacheBytes(file)
        .read_u32(12)
        .ok_or(LdCacheError::CutOff("old header"))? as usize;
    let end = count
        .saturating_mul(OLD_ENTRY_SIZE)
        .saturating_add(OLD_HEADER_SIZE);
    // The header of the newer format is aligned to 8 bytes, because its entries contain 64-bit
    // numbers. In a file that ldconfig wrote on i386, it is not aligned, so both positions are
    // tried.
    [end.saturating_add(7) & !7, end]
        .into_iter()
        .find(|start| {
            file.get(*start..)
                .is_some_and(|bytes| bytes.starts_with(MAGIC))
        })
        .ok_or(LdCacheError::OldFormat)
}

fn parse_entries(image: CacheBytes<'_>) -> Result<Vec<Entry>, LdCacheError> {
    const CUT_OFF_ERROR: LdCacheError = LdCacheError::CutOff("table of entries");

    let count = image.read_u32(20).ok_or(CUT_OFF_ERROR)? as usize;
    let table = &image.0[HEADER_SIZE..];
    if count > table.len() / ENTRY_SIZE {
        return Err(CUT_OFF_ERROR);
    }
    if count > MAX_ENTRIES {
        return Err(LdCacheError::TooManyEntries(count));
    }
    let mut string_bytes = 0;
    let (table, _) = table[..count * ENTRY_SIZE].as_chunks();
    table
        .iter()
        .map(|entry_bytes| {
            let entry = parse_entry(image, entry_bytes)?;
            string_bytes += entry.soname.count_bytes() + entry.path.count_bytes() + 2;
            if string_bytes > MAX_CACHE_BYTES {
                return Err(LdCacheError::TooLarge(string_bytes));
            }
            Ok(entry)
        })
        .collect()
}

fn parse_entry(
    image: CacheBytes<'_>,
    entry_bytes: &[u8; ENTRY_SIZE],
) -> Result<Entry, LdCacheError> {
    let read_u32 = |offset: usize| {
        let bytes = [
            entry_bytes[offset],
            entry_bytes[offset + 1],
            entry_bytes[offset + 2],
            entry_bytes[offset + 3],
        ];
        u32::from_le_bytes(bytes)
    };
    Ok(Entry {
        flags: Flags(read_u32(0).cast_signed()),
        soname: image.read_string(read_u32(4), MAX_NAME_BYTES)?.into(),
        path: image.read_string(read_u32(8), MAX_PATH_BYTES)?.into(),
        os_version: read_u32(12),
        hwcap: u64::from(read_u32(20)) << 32 | u64::from(read_u32(16)),
    })
}

//! Converts a cache to the bytes of the file ld.so.cache.

use super::extension::{self, to_u32};
use super::{
    ENTRY_SIZE, Entry, HEADER_SIZE, LdCache, LdCacheError, MAGIC, MAX_CACHE_BYTES, MAX_ENTRIES,
};

const BYTE_ORDER_LITTLE: u8 = 2;

impl LdCache {
    /// Returns the content of the file. It has only the newer format, which every glibc since 2.2
    /// reads. The entries stay in the same order.
    ///
    /// # Errors
    ///
    /// The cache has more than [`MAX_ENTRIES`] entries, or the file would be longer than
    /// [`MAX_CACHE_BYTES`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, LdCacheError> {
        if self.entries.len() > MAX_ENTRIES {
            return Err(LdCacheError::TooManyEntries(self.entries.len()));
        }
        let strings_start = HEADER_SIZE + self.entries.len() * ENTRY_SIZE;
        let mut entry_table = Vec::with_capacity(strings_start - HEADER_SIZE);
        let mut strings = StringTable {
            start: strings_start,
            bytes: Vec::new(),
        };
        for entry in &self.entries {
            push_entry(entry, &mut entry_table, &mut strings)?;
        }
        let hwcaps: Vec<u32> = self
            .hwcaps
            .iter()
            .map(|name| strings.push(name.to_bytes_with_nul()))
            .collect::<Result<_, _>>()?;
        let string_bytes = to_u32(strings.bytes.len())?;

        let extension_start = strings.end().next_multiple_of(4);
        let extensions = extension::to_bytes(self.generator.as_deref(), &hwcaps, extension_start)?;
        let size = extension_start + extensions.len();
        if size > MAX_CACHE_BYTES {
            return Err(LdCacheError::TooLarge(size));
        }

        let mut file = Vec::with_capacity(size);
        file.extend_from_slice(MAGIC);
        file.extend(to_u32(self.entries.len())?.to_le_bytes());
        file.extend(string_bytes.to_le_bytes());
        file.extend([BYTE_ORDER_LITTLE, 0, 0, 0]);
        let extension_offset = if extensions.is_empty() {
            0
        } else {
            extension_start
        };
        file.extend(to_u32(extension_offset)?.to_le_bytes());
        file.resize(HEADER_SIZE, 0);
        file.append(&mut entry_table);
        file.append(&mut strings.bytes);
        if !extensions.is_empty() {
            file.resize(extension_start, 0);
            file.extend(extensions);
        }
        Ok(file)
    }
}

fn push_entry(
    entry: &Entry,
    table: &mut Vec<u8>,
    strings: &mut StringTable,
) -> Result<(), LdCacheError> {
    let (soname, path) = (
        entry.soname.to_bytes_with_nul(),
        entry.path.to_bytes_with_nul(),
    );
    let path_offset = strings.push(path)?;
    // Most paths end with the soname. Then the soname is stored as the end of the path's string, so
    // that only one string is needed.
    let soname_offset = if path.ends_with(soname) {
        path_offset + to_u32(path.len() - soname.len())?
    } else {
        strings.push(soname)?
    };
    table.extend(entry.flags.0.to_le_bytes());
    table.extend(soname_offset.to_le_bytes());
    table.extend(path_offset.to_le_bytes());
    table.extend(entry.os_version.to_le_bytes());
    table.extend(entry.hwcap.to_le_bytes());
    Ok(())
}

/// The strings of the file, collected while the entries are written. The entries refer to them by
/// their offsets.
struct StringTable {
    /// The offset of the first string in the file.
    start: usize,
    bytes: Vec<u8>,
}

impl StringTable {
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }

    /// Adds a string that ends with NUL, and returns its offset in the file.
    fn push(&mut self, string: &[u8]) -> Result<u32, LdCacheError> {
        let offset = self.end();
        if offset + string.len() > MAX_CACHE_BYTES {
            return Err(LdCacheError::TooLarge(offset + string.len()));
        }
        self.bytes.extend_from_slice(string);
        to_u32(offset)
    }
}

//! The extension directory at the end of ld.so.cache (glibc 2.33 and later).
//!
//! ```text
//! directory   magic u32 | count u32                     at the header's offset, a multiple of 4
//! section 16  tag u32 | flags u32, 0 | offset u32 | size u32     `count` times
//! ```
//!
//! The offset of a section counts from the first byte of the file. Two tags are known. The section
//! with tag 0 is a text with the name and version of the program that wrote the cache. The section
//! with tag 1 lists the `glibc-hwcaps` subdirectories, as an array of string offsets. The parser
//! replaces these offsets by the names. They are computed again when the cache is written, because
//! the strings move.
//!
//! A section with any other tag is dropped. It may contain offsets of strings, which would be wrong
//! after the strings have moved. The loader skips tags that it does not know, so the result is the
//! same as from an older ldconfig.

use std::ffi::CString;

use super::image::CacheBytes;
use super::{LdCacheError, MAX_NAME_BYTES, MAX_PATH_BYTES};

/// The magic number of the extension directory (`cache_extension_magic` in glibc's
/// `sysdeps/generic/dl-cache.h`).
const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
const TAG_GENERATOR: u32 = 0;
const TAG_GLIBC_HWCAPS: u32 = 1;
const DIRECTORY_SIZE: usize = 8;
const SECTION_SIZE: usize = 16;

/// The maximum number of sections. Only two tags are known. Each section may be as long as the
/// file, so without a limit a small file could cause much work.
const MAX_SECTIONS: usize = 16;

/// The maximum number of `glibc-hwcaps` subdirectories, such as `x86-64-v3`. An architecture has
/// only a few of them.
const MAX_HWCAPS: usize = 64;

#[derive(Default)]
pub(super) struct Extensions {
    pub(super) generator: Option<Vec<u8>>,
    pub(super) hwcaps: Vec<CString>,
}

/// Parses the extensions of a cache. `file` is the whole file. `image` is the rest of the file from
/// the header of the newer format on.
///
/// Returns an error for extensions that the loader refuses. Ignores those that the loader ignores:
/// a table of subdirectories that is not aligned to 4 bytes, and of several sections with the same
/// tag all except the last one.
pub(super) fn parse(file: &[u8], image: CacheBytes<'_>) -> Result<Extensions, LdCacheError> {
    const OUTSIDE_FILE_ERROR: LdCacheError =
        LdCacheError::BadExtension("the directory is outside the file");

    let offset = image.read_u32(32).ok_or(OUTSIDE_FILE_ERROR)? as usize;
    if offset == 0 {
        return Ok(Extensions::default());
    }
    if !offset.is_multiple_of(4) {
        return Err(LdCacheError::BadExtension("the directory is misaligned"));
    }
    let directory = file.get(offset..).ok_or(OUTSIDE_FILE_ERROR)?;
    if CacheBytes(directory)
        .read_u32(0)
        .ok_or(OUTSIDE_FILE_ERROR)?
        != EXTENSION_MAGIC
    {
        return Err(LdCacheError::BadExtension(
            "the directory's magic number is wrong",
        ));
    }
    let count = CacheBytes(directory)
        .read_u32(4)
        .ok_or(OUTSIDE_FILE_ERROR)? as usize;
    let sections = &directory[DIRECTORY_SIZE..];
    if count > sections.len() / SECTION_SIZE {
        return Err(OUTSIDE_FILE_ERROR);
    }
    if count > MAX_SECTIONS {
        return Err(LdCacheError::BadExtension("there are too many sections"));
    }
    let (mut generator, mut hwcaps) = (None, None);
    for section in sections
        .chunks_exact(SECTION_SIZE)
        .take(count)
        .map(CacheBytes)
    {
        let tag = section.read_u32(0).ok_or(OUTSIDE_FILE_ERROR)?;
        let start = section.read_u32(8).ok_or(OUTSIDE_FILE_ERROR)? as usize;
        let size = section.read_u32(12).ok_or(OUTSIDE_FILE_ERROR)? as usize;
        let data = file
            .get(start..start.saturating_add(size))
            .ok_or(LdCacheError::BadExtension("a section is outside the file"))?;
        match tag {
            TAG_GENERATOR => generator = Some(data),
            TAG_GLIBC_HWCAPS => hwcaps = Some(data).filter(|_| start.is_multiple_of(4)),
            _ => {}
        }
    }
    // The sections are parsed after the loop, so that each tag is parsed only once, however many
    // sections have it.
    if generator.is_some_and(|text| text.len() > MAX_PATH_BYTES) {
        return Err(LdCacheError::BadExtension("the generator is too long"));
    }
    Ok(Extensions {
        generator: generator.map(<[u8]>::to_vec),
        hwcaps: hwcaps.map_or_else(|| Ok(Vec::new()), |data| parse_hwcaps(image, data))?,
    })
}

/// Parses the names of the `glibc-hwcaps` subdirectories. Their offsets count from the header, as
/// in the entries and as ldconfig writes them. (The loader counts from the first byte of the file.
/// The two differ only if the older format precedes the header.)
fn parse_hwcaps(image: CacheBytes<'_>, section: &[u8]) -> Result<Vec<CString>, LdCacheError> {
    let (offsets, remainder) = section.as_chunks();
    if !remainder.is_empty() {
        return Ok(Vec::new());
    }
    if offsets.len() > MAX_HWCAPS {
        return Err(LdCacheError::BadExtension(
            "there are too many glibc-hwcaps names",
        ));
    }
    offsets
        .iter()
        .map(|offset| {
            Ok(image
                .read_string(u32::from_le_bytes(*offset), MAX_NAME_BYTES)?
                .into())
        })
        .collect()
}

/// Returns the bytes of the extension directory and of its sections. They begin at the file offset
/// `start`, which is a multiple of 4. `hwcaps` are the string offsets of the `glibc-hwcaps` names.
/// Returns nothing if there is no extension.
pub(super) fn to_bytes(
    generator: Option<&[u8]>,
    hwcaps: &[u32],
    start: usize,
) -> Result<Vec<u8>, LdCacheError> {
    let hwcaps: Vec<u8> = hwcaps
        .iter()
        .flat_map(|offset| offset.to_le_bytes())
        .collect();
    // The array of string offsets must be aligned to 4 bytes. It comes first, because the end of
    // the extension directory is already aligned.
    let sections: Vec<(u32, &[u8])> = [
        (
            TAG_GLIBC_HWCAPS,
            Some(hwcaps.as_slice()).filter(|array| !array.is_empty()),
        ),
        (TAG_GENERATOR, generator),
    ]
    .into_iter()
    .filter_map(|(tag, data)| Some((tag, data?)))
    .collect();
    if sections.is_empty() {
        return Ok(Vec::new());
    }
    let mut directory = Vec::new();
    push_u32s(&mut directory, [EXTENSION_MAGIC, to_u32(sections.len())?]);
    let mut offset = start + DIRECTORY_SIZE + sections.len() * SECTION_SIZE;
    for (tag, data) in &sections {
        push_u32s(
            &mut directory,
            [*tag, 0, to_u32(offset)?, to_u32(data.len())?],
        );
        offset += data.len();
    }
    directory.extend(sections.iter().flat_map(|(_, data)| *data));
    Ok(directory)
}

/// Converts a size or offset to 32 bits, as the format requires. Fails if the value is larger.
pub(super) fn to_u32(value: usize) -> Result<u32, LdCacheError> {
    u32::try_from(value).map_err(|_| LdCacheError::TooLarge(value))
}

fn push_u32s<const N: usize>(bytes: &mut Vec<u8>, numbers: [u32; N]) {
    bytes.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
}

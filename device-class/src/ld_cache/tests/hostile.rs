//! Damaged and crafted files.

use super::*;

/// The file of [`rich_cache`] with a number written over, or cut.
struct Damage(Vec<u8>);

impl Damage {
    fn new() -> Self {
        Self(rich_cache().to_bytes().unwrap())
    }

    fn put(offset: usize, value: u32) -> Self {
        let mut whole = Self::new();
        whole.0[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        whole
    }

    fn byte(offset: usize, value: u8) -> Self {
        let mut whole = Self::new();
        whole.0[offset] = value;
        whole
    }

    fn cut(mut self, length: usize) -> Self {
        self.0.truncate(length);
        self
    }

    fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// The value of a header's field.
    fn read(&self, offset: usize) -> usize {
        u32::from_le_bytes(*self.0[offset..].first_chunk().unwrap()) as usize
    }
}

/// Offsets of header fields and of the first entry's.
const COUNT: usize = 20;
const FLAGS: usize = 28;
const EXTENSIONS: usize = 32;
const SONAME: usize = HEADER_SIZE + 4;
const PATH: usize = HEADER_SIZE + 8;

#[test]
fn damage_is_refused_by_name() {
    use LdCacheError::*;
    let len = Damage::new().len();
    let directory = Damage::new().read(EXTENSIONS);
    let first_section = directory + 8;
    let hwcaps = Damage::new().read(first_section + 8);
    let entries = CutOff("table of entries");
    let (put, byte) = (Damage::put, Damage::byte);
    for (name, damage, want) in [
        ("empty", Damage::new().cut(0), NotACache),
        ("other magic", byte(0, b'G'), NotACache),
        ("other version", byte(19, b'2'), NotACache),
        ("only magic", Damage::new().cut(20), CutOff("header")),
        ("half a header", Damage::new().cut(47), CutOff("header")),
        ("half the entries", Damage::new().cut(100), entries.clone()),
        ("count too high", put(COUNT, 1000), entries.clone()),
        ("count absurd", put(COUNT, u32::MAX), entries),
        ("big-endian", byte(FLAGS, 3), ForeignByteOrder),
        ("big-endian, odd bits", byte(FLAGS, 0xff), ForeignByteOrder),
        ("marked invalid", byte(FLAGS, 1), MarkedInvalid),
    ] {
        assert_eq!(LdCache::parse(&damage.0), Err(want), "{name}");
    }
    for (name, field, value, max) in [
        ("soname at the end", SONAME, len, MAX_NAME_BYTES),
        ("path far outside", PATH, u32::MAX, MAX_PATH_BYTES),
        // The last byte of the file is the generator's, which has no terminator.
        ("unterminated", SONAME, len - 1, MAX_NAME_BYTES),
        ("hwcaps name outside", hwcaps, len, MAX_NAME_BYTES),
    ] {
        let offset = value as usize;
        let want = BadString {
            offset,
            max_length: max,
        };
        assert_eq!(LdCache::parse(&put(field, value).0), Err(want), "{name}");
    }
    let outside = "the directory is outside the file";
    let misaligned = "the directory is misaligned";
    let no_magic = "the directory's magic number is wrong";
    let section_outside = "a section is outside the file";
    for (name, field, value, reason) in [
        ("extensions outside", EXTENSIONS, 0xffff_fffc, outside),
        ("extensions at the end", EXTENSIONS, len & !3, outside),
        ("misaligned", EXTENSIONS, directory as u32 + 1, misaligned),
        ("without magic", EXTENSIONS, 0x30, no_magic),
        ("too many sections", directory + 4, u32::MAX, outside),
        ("offset", first_section + 8, u32::MAX, section_outside),
        ("size", first_section + 12, u32::MAX, section_outside),
    ] {
        let want = BadExtension(reason);
        assert_eq!(LdCache::parse(&put(field, value).0), Err(want), "{name}");
    }
}

#[test]
fn what_the_loader_ignores_is_ignored() {
    let directory = Damage::new().read(EXTENSIONS);
    let (hwcaps, generator) = (directory + 8, directory + 24);
    let without_hwcaps = LdCache {
        hwcaps: vec![],
        ..rich_cache()
    };
    let without_generator = LdCache {
        generator: None,
        ..rich_cache()
    };
    let (put, byte) = (Damage::put, Damage::byte);
    let at = Damage::new().read(hwcaps + 8) as u32;
    for (name, damage, want) in [
        ("byte order not said", byte(FLAGS, 0), rich_cache()),
        ("unknown flag bits", byte(FLAGS, 0xfe), rich_cache()),
        ("length of strings", put(24, u32::MAX), rich_cache()),
        ("unknown section", put(generator, 77), without_generator),
        (
            "misaligned hwcaps",
            put(hwcaps + 8, at + 1),
            without_hwcaps.clone(),
        ),
        ("odd hwcaps size", put(hwcaps + 12, 7), without_hwcaps),
    ] {
        assert_eq!(LdCache::parse(&damage.0), Ok(want), "{name}");
    }
}

#[test]
fn limits_hold() {
    assert_eq!(
        LdCache::parse(&vec![0; MAX_CACHE_BYTES + 1]),
        Err(LdCacheError::TooLarge(MAX_CACHE_BYTES + 1))
    );

    let many = cache(vec![entry(Abi::X86_64, "a", "/a"); MAX_ENTRIES + 1]);
    assert_eq!(
        many.to_bytes(),
        Err(LdCacheError::TooManyEntries(MAX_ENTRIES + 1))
    );

    let mut counted = cache([]).to_bytes().unwrap();
    counted[COUNT..COUNT + 4].copy_from_slice(&(MAX_ENTRIES as u32 + 1).to_le_bytes());
    counted.resize(HEADER_SIZE + (MAX_ENTRIES + 1) * ENTRY_SIZE, 0);
    assert_eq!(
        LdCache::parse(&counted),
        Err(LdCacheError::TooManyEntries(MAX_ENTRIES + 1))
    );
}

#[test]
fn strings_are_at_most_names_and_paths() {
    for (soname, path, readable) in [
        (MAX_NAME_BYTES - 1, MAX_PATH_BYTES - 1, true),
        (MAX_NAME_BYTES, 1, false),
        (1, MAX_PATH_BYTES, false),
    ] {
        let long = cache([entry(Abi::X86_64, &"a".repeat(soname), &"b".repeat(path))]);
        let parsed = LdCache::parse(&long.to_bytes().unwrap());
        assert_eq!(parsed.is_ok(), readable, "{soname}, {path}: {parsed:?}");
    }
}

/// A cache with `count` extension sections of one tag, each of them the whole file.
fn with_sections(count: u32, tag: u32) -> Vec<u8> {
    let mut file = cache([]).to_bytes().unwrap();
    let words = [0xeaa4_2174, count].into_iter();
    let sections = (0..count).flat_map(|_| [tag, 0, 0, MAX_CACHE_BYTES as u32]);
    file[EXTENSIONS..][..4].copy_from_slice(&(HEADER_SIZE as u32).to_le_bytes());
    file.extend(words.chain(sections).flat_map(u32::to_le_bytes));
    file.resize(MAX_CACHE_BYTES, 0);
    file
}

#[test]
fn a_section_is_read_once_however_often_it_is_listed() {
    use LdCacheError::BadExtension;
    let refused = |reason| Err(BadExtension(reason));
    for (count, tag, want) in [
        (16, 7, Ok(LdCache::default())),
        (17, 7, refused("there are too many sections")),
        (100_000, 0, refused("there are too many sections")),
        (16, 0, refused("the generator is too long")),
        (16, 1, refused("there are too many glibc-hwcaps names")),
    ] {
        let file = with_sections(count, tag);
        assert_eq!(LdCache::parse(&file), want, "{count} of tag {tag}");
    }
}

#[test]
fn a_small_file_cannot_ask_for_much_memory() {
    // Every path is the same long string.
    let long = "a".repeat(MAX_PATH_BYTES - 1);
    let mut file = cache(vec![entry(Abi::X86_64, "", ""); 10_000])
        .to_bytes()
        .unwrap();
    let string = file.len() as u32;
    file.extend(long.as_bytes());
    file.push(0);
    for entry in file[HEADER_SIZE..][..10_000 * ENTRY_SIZE].chunks_mut(ENTRY_SIZE) {
        entry[8..12].copy_from_slice(&string.to_le_bytes());
    }
    assert!(file.len() < MAX_CACHE_BYTES / 2);
    assert!(matches!(
        LdCache::parse(&file),
        Err(LdCacheError::TooLarge(_))
    ));
}

/// A file of the old format with `count` entries and the new format behind it.
fn with_old_format(count: u32, pad: usize) -> Vec<u8> {
    let mut file = b"ld.so-1.7.0\0".to_vec();
    file.extend(count.to_le_bytes());
    file.resize(16 + count as usize * 12 + pad, 0);
    // The offsets of sections count from the file's first byte, all others from the header.
    let mut new = rich_cache().to_bytes().unwrap();
    let directory = u32::from_le_bytes(*new[EXTENSIONS..].first_chunk().unwrap()) as usize;
    for offset in [EXTENSIONS, directory + 8 + 8, directory + 24 + 8] {
        let value = u32::from_le_bytes(*new[offset..].first_chunk().unwrap()) + file.len() as u32;
        new[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
    file.extend(new);
    file
}

#[test]
fn the_new_format_is_found_behind_the_old() {
    use LdCacheError::*;
    let mut absurd = with_old_format(2, 0);
    absurd[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let rich = || Ok(rich_cache());
    let alone = with_old_format(2, 0)[..40].to_vec();
    let half = b"ld.so-1.7.0\0\x02".to_vec();
    for (name, file, want) in [
        ("no old entries", with_old_format(0, 0), rich()),
        ("even number", with_old_format(2, 0), rich()),
        ("odd number, aligned to 8", with_old_format(3, 4), rich()),
        ("odd number, aligned to 4", with_old_format(3, 0), rich()),
        ("misplaced", with_old_format(2, 4), Err(OldFormat)),
        ("absurd count", absurd, Err(OldFormat)),
        ("old format alone", alone, Err(OldFormat)),
        ("half an old header", half, Err(CutOff("old header"))),
    ] {
        assert_eq!(LdCache::parse(&file), want, "{name}");
    }
}

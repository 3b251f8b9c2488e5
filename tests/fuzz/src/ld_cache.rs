//! The loader's cache of a container: parsed, merged, written and parsed again.

use device_class::ld_cache::{Abi, LdCache, NewEntry};

const SONAME: &str = "libfuzz.so.1";

pub(crate) fn merge(bytes: &[u8]) {
    merged_file(bytes);
}

/// The merged file, if `bytes` are a cache and the result is not too large.
pub(crate) fn merged_file(bytes: &[u8]) -> Option<Vec<u8>> {
    let cache = LdCache::parse(bytes).ok()?;
    // A file whose entries share their strings may be too large when they don't.
    if let Ok(written) = cache.to_bytes() {
        assert_eq!(LdCache::parse(&written).as_ref(), Ok(&cache));
    }
    let ours = NewEntry::new(SONAME, "/ours/libfuzz.so.1").unwrap();
    let merged = LdCache::merge(Some(&cache), std::slice::from_ref(&ours), Abi::X86_64);
    let found: Vec<_> = merged.lookup(SONAME, Abi::X86_64).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, ours.path);
    assert_eq!(LdCache::merge(Some(&merged), &[ours], Abi::X86_64), merged);
    let written = merged.to_bytes().ok()?;
    assert_eq!(LdCache::parse(&written), Ok(merged));
    Some(written)
}

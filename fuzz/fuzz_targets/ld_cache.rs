//! A container's loader cache: read, merged, written and read again.
//!
//! `cargo fuzz run ld_cache`; a good corpus is any machine's `/etc/ld.so.cache`.

#![no_main]

use device_class::ld_cache::{Abi, LdCache, NewEntry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(cache) = LdCache::parse(bytes) else { return };
    // A file whose entries share their strings may be too large when they don't.
    if let Ok(written) = cache.to_bytes() {
        assert_eq!(LdCache::parse(&written).as_ref(), Ok(&cache));
    }
    let Ok(ours) = NewEntry::new("libfuzz.so.1", "/ours/libfuzz.so.1") else { return };
    let merged = LdCache::merge(Some(&cache), std::slice::from_ref(&ours), Abi::X86_64);
    let found: Vec<_> = merged.lookup("libfuzz.so.1", Abi::X86_64).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, ours.path);
    assert_eq!(LdCache::merge(Some(&merged), &[ours], Abi::X86_64), merged);
    if let Ok(written) = merged.to_bytes() {
        assert_eq!(LdCache::parse(&written), Ok(merged));
    }
});

//! Merged caches: the entries that stay, those that are replaced, and their order.

use super::*;

fn paths(cache: &LdCache) -> Vec<&str> {
    cache
        .entries
        .iter()
        .map(|entry| entry.path.to_str().unwrap())
        .collect()
}

#[test]
fn ours_replace_their_soname_and_abi_and_nothing_else() {
    let add = [
        new_entry("libm.so.6", "/ours/libm.so.6"),
        new_entry("libnew.so.1", "/ours/libnew.so.1"),
        new_entry("libnew.so.1", "/later/libnew.so.1"),
    ];
    for (abi, want) in [
        (
            Abi::X86_64,
            &[
                "/usr/lib/libz.so.1",
                "/usr/lib32/libz.so.1",
                "/ours/libnew.so.1",
                // The variants for hardware capabilities are gone as well.
                "/ours/libm.so.6",
                "/opt/strange/a-library",
            ][..],
        ),
        (
            Abi::I386,
            &[
                "/usr/lib/libz.so.1",
                "/usr/lib32/libz.so.1",
                "/ours/libnew.so.1",
                "/usr/lib/glibc-hwcaps/x86-64-v2/libm.so.6",
                "/usr/lib/glibc-hwcaps/x86-64-v3/libm.so.6",
                "/lib/libm.so.6",
                "/ours/libm.so.6",
                "/opt/strange/a-library",
            ],
        ),
    ] {
        let merged = LdCache::merge(Some(&rich_cache()), &add, abi);
        assert_eq!(paths(&merged), want, "{abi:?}");
        assert_eq!(merged.generator, rich_cache().generator);
        assert_eq!(merged.hwcaps, rich_cache().hwcaps);
    }
}

#[test]
fn an_entry_that_would_hide_an_injected_soname_is_removed() {
    let stale = cache([entry(Abi::X86_64, "libx.so.01", "/stale/libx.so.01")]);
    let merged = LdCache::merge(
        Some(&stale),
        &[new_entry("libx.so.1", "/ours/x")],
        Abi::X86_64,
    );
    assert_eq!(paths(&merged), ["/ours/x"]);
}

#[test]
fn without_a_cache_there_are_only_ours_sorted() {
    let add = [
        new_entry("liba.so.9", "/ours/a9"),
        new_entry("libb.so.1", "/ours/b1"),
        new_entry("liba.so.10", "/ours/a10"),
    ];
    let merged = LdCache::merge(None, &add, Abi::Aarch64);
    assert_eq!(paths(&merged), ["/ours/b1", "/ours/a10", "/ours/a9"]);
    assert!(
        merged
            .entries
            .iter()
            .all(|entry| entry.flags.abi() == Some(Abi::Aarch64))
    );
    assert_eq!(LdCache::parse(&merged.to_bytes().unwrap()), Ok(merged));
}

#[test]
fn an_unsorted_cache_is_sorted() {
    let unsorted = cache([
        entry(Abi::X86_64, "liba.so.1", "/a"),
        entry(Abi::I386, "libz.so.1", "/z32"),
        entry(Abi::X86_64, "libz.so.1", "/z"),
    ]);
    assert_eq!(
        paths(&LdCache::merge(Some(&unsorted), &[], Abi::X86_64)),
        ["/z", "/z32", "/a"]
    );
}

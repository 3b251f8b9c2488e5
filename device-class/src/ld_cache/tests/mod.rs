//! Tests of the whole module, and of how glibc reads its files.

mod hostile;
mod ldconfig;
mod loader;
mod merge;
mod properties;
mod work;

use std::ffi::CString;

use super::*;

/// The cache of the machine that runs the tests.
const HOST_CACHE: &str = "/etc/ld.so.cache";

/// The ABI of the machine that runs the tests.
const HOST_ABI: Abi = if cfg!(target_arch = "aarch64") {
    Abi::Aarch64
} else {
    Abi::X86_64
};

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn new_entry(soname: &str, path: &str) -> NewEntry {
    NewEntry::new(soname, path).unwrap()
}

fn entry(flags: impl Into<Flags>, soname: &str, path: &str) -> Entry {
    Entry {
        flags: flags.into(),
        soname: c(soname),
        path: c(path),
        os_version: 0,
        hwcap: 0,
    }
}

fn cache(entries: impl Into<Vec<Entry>>) -> LdCache {
    LdCache {
        entries: entries.into(),
        ..LdCache::default()
    }
}

/// A cache that has everything that a file can have, sorted as ldconfig sorts it.
fn rich_cache() -> LdCache {
    let variant = |version: u64, index: u64| {
        let path = format!("/usr/lib/glibc-hwcaps/x86-64-v{version}/libm.so.6");
        let hwcap = 1 << 62 | (version - 1) << 32 | index;
        Entry {
            hwcap,
            ..entry(Abi::X86_64, "libm.so.6", &path)
        }
    };
    LdCache {
        entries: vec![
            entry(Abi::X86_64, "libz.so.1", "/usr/lib/libz.so.1"),
            entry(Abi::I386, "libz.so.1", "/usr/lib32/libz.so.1"),
            variant(2, 0),
            variant(3, 1),
            Entry {
                os_version: 0x0003_0200,
                ..entry(Abi::X86_64, "libm.so.6", "/lib/libm.so.6")
            },
            entry(Flags(0x7f03), "liba.so.2", "/opt/strange/a-library"),
        ],
        generator: Some(b"ldconfig of a test".into()),
        hwcaps: vec![c("x86-64-v2"), c("x86-64-v3")],
    }
}

/// The host's cache, or `None` with the reason printed.
fn host_cache() -> Option<LdCache> {
    let reason = match std::fs::read(HOST_CACHE) {
        Ok(bytes) => {
            let cache = LdCache::parse(&bytes).unwrap();
            // Under an emulator the host's libraries are of another architecture.
            if cache.lookup_plain("libc.so.6", HOST_ABI).is_some() {
                return Some(cache);
            }
            format!("{HOST_CACHE} has no libc.so.6 of this program's architecture")
        }
        Err(error) => format!("cannot read {HOST_CACHE}: {error}"),
    };
    skip::report("the host's cache", &reason);
    None
}

#[test]
fn the_hosts_cache_survives_and_is_sorted_as_we_sort() {
    let Some(cache) = host_cache() else { return };
    assert_eq!(
        LdCache::parse(&cache.to_bytes().unwrap()).as_ref(),
        Ok(&cache)
    );
    assert_eq!(LdCache::merge(Some(&cache), &[], HOST_ABI), cache);
    let libc = cache.lookup_plain("libc.so.6", HOST_ABI).unwrap();
    assert!(libc.path().is_absolute(), "{libc:?}");
}

#[test]
fn lookup_finds_all_of_a_soname_and_abi_in_order() {
    let cache = rich_cache();
    for (soname, abi, want) in [
        ("libz.so.1", Abi::X86_64, &["/usr/lib/libz.so.1"][..]),
        ("libz.so.1", Abi::I386, &["/usr/lib32/libz.so.1"]),
        ("libz.so.01", Abi::I386, &["/usr/lib32/libz.so.1"]),
        ("libz.so.1", Abi::Aarch64, &[]),
        (
            "libm.so.6",
            Abi::X86_64,
            &[
                "/usr/lib/glibc-hwcaps/x86-64-v2/libm.so.6",
                "/usr/lib/glibc-hwcaps/x86-64-v3/libm.so.6",
                "/lib/libm.so.6",
            ],
        ),
        ("liba.so.2", Abi::X86_64, &[]),
        ("libm.so", Abi::X86_64, &[]),
        ("", Abi::X86_64, &[]),
    ] {
        let found: Vec<_> = cache
            .lookup(soname, abi)
            .map(|entry| entry.path())
            .collect();
        assert_eq!(
            found,
            want.iter().map(Path::new).collect::<Vec<_>>(),
            "{soname} {abi:?}"
        );
    }
    let plain = cache
        .lookup_plain("libm.so.6", Abi::X86_64)
        .map(Entry::path);
    assert_eq!(plain, Some(Path::new("/lib/libm.so.6")));
}

#[test]
fn flags_name_their_abi() {
    for (flags, want) in [
        (0x0303, Some(Abi::X86_64)),
        (0x0a03, Some(Abi::Aarch64)),
        (0x0003, Some(Abi::I386)),
        (0x0803, None),
        (-1, None),
    ] {
        assert_eq!(Flags(flags).abi(), want, "{flags:#x}");
    }
}

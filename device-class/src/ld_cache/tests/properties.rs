//! Properties of every cache and every input.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Names from few pieces, so that they meet, in the loader's sense too.
fn soname() -> impl Strategy<Value = CString> {
    vec(
        prop::sample::select(vec!["lib", "a", ".so.", "1", "01", "9", "10", "\u{e9}"]),
        0..5,
    )
    .prop_map(|pieces| c(&pieces.concat()))
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let flags = prop::sample::select(vec![0x0303, 0x0003, 0x0a03, -1]);
    (
        flags,
        soname(),
        "/[a-z]{0,3}",
        soname(),
        any::<u32>(),
        any::<u64>(),
    )
        .prop_map(|(flags, soname, directory, name, os_version, hwcap)| {
            let path = c(&format!("{directory}/{}", name.to_str().unwrap()));
            Entry {
                flags: Flags(flags),
                soname,
                path,
                os_version,
                hwcap,
            }
        })
}

fn any_cache() -> impl Strategy<Value = LdCache> {
    (
        vec(any_entry(), 0..20),
        any::<Option<Vec<u8>>>(),
        vec(soname(), 0..4),
    )
        .prop_map(|(entries, generator, hwcaps)| LdCache {
            entries,
            generator,
            hwcaps,
        })
}

fn additions() -> impl Strategy<Value = Vec<NewEntry>> {
    let one = (soname(), "/ours/[a-z]{1,3}");
    vec(
        one.prop_map(|(soname, path)| NewEntry {
            soname,
            path: c(&path),
        }),
        0..6,
    )
}

/// An entry's place to the loader: what makes two entries stand in for each other.
fn is_same_library(a: &Entry, b: &Entry) -> bool {
    a.flags == b.flags && soname_cmp(a.soname.to_bytes(), b.soname.to_bytes()) == Ordering::Equal
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        let _ = LdCache::parse(&bytes);
        let _ = LdCache::parse(&[MAGIC, &bytes].concat());
        let _ = LdCache::parse(&[&b"ld.so-1.7.0\0"[..], &bytes].concat());
    }

    #[test]
    fn damaged_files_never_panic(
        cache in any_cache(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = cache.to_bytes().unwrap();
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Ok(cache) = LdCache::parse(&bytes) {
            let _ = LdCache::merge(Some(&cache), &[new_entry("liba", "/a")], Abi::X86_64).to_bytes();
        }
    }

    #[test]
    fn every_cache_survives_its_file(cache in any_cache()) {
        prop_assert_eq!(LdCache::parse(&cache.to_bytes().unwrap()), Ok(cache));
    }

    #[test]
    fn merging_twice_changes_nothing(cache in any_cache(), add in additions()) {
        let once = LdCache::merge(Some(&cache), &add, Abi::X86_64);
        prop_assert_eq!(&LdCache::merge(Some(&once), &add, Abi::X86_64), &once);
    }

    #[test]
    fn the_loader_uses_the_injected_library(cache in any_cache(), add in additions()) {
        let merged = LdCache::merge(Some(&cache), &add, Abi::X86_64);
        for new in &add {
            let found: Vec<_> = merged.lookup(OsStr::from_bytes(new.soname.to_bytes()), Abi::X86_64).collect();
            prop_assert_eq!(found.len(), 1);
            prop_assert!(add.iter().any(|new| new.path == found[0].path));
        }
    }

    #[test]
    fn all_others_stay(cache in any_cache(), add in additions()) {
        let merged = LdCache::merge(Some(&cache), &add, Abi::X86_64);
        let ours = LdCache::merge(None, &add, Abi::X86_64).entries;
        let want: Vec<&Entry> = cache
            .entries
            .iter()
            .filter(|entry| !ours.iter().any(|ours| is_same_library(ours, entry)))
            .chain(&ours)
            .collect();
        prop_assert_eq!(merged.entries.len(), want.len());
        let merged: HashSet<String> = merged.entries.iter().map(|e| format!("{e:?}")).collect();
        for entry in want {
            prop_assert!(merged.contains(&format!("{entry:?}")), "{:?} is lost", entry);
        }
    }

    #[test]
    fn the_order_of_sonames_is_total(
        a in "[0-9a.é]{0,6}", b in "[0-9a.é]{0,6}", c in "[0-9a.é]{0,6}",
    ) {
        let cmp = |a: &str, b: &str| soname_cmp(a.as_bytes(), b.as_bytes());
        prop_assert_eq!(cmp(&a, &b), cmp(&b, &a).reverse());
        if cmp(&a, &b) == cmp(&b, &c) {
            prop_assert_eq!(cmp(&a, &c), cmp(&a, &b));
        }
    }
}

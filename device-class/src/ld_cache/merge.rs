//! Adds the libraries that the hook injects to a container's ld.so.cache.

use std::cmp::Ordering;

use super::{Abi, Entry, Flags, LdCache, NewEntry, soname_cmp};

impl LdCache {
    /// Returns a cache with the libraries `injected` for programs of `abi`, and the remaining
    /// entries of `existing`. An injected library replaces an entry with the same ABI and, in the
    /// loader's comparison, the same soname. It also replaces variants of the entry for certain
    /// processors (hardware capabilities), because the loader would prefer them.
    ///
    /// The result is sorted as the loader expects it. If two injected libraries have the same
    /// soname, only the first is added, because the loader would never use the second. Merging the
    /// same libraries again changes nothing.
    pub fn merge(existing: Option<&Self>, injected: &[NewEntry], abi: Abi) -> Self {
        let flags = Flags::from(abi);
        let existing_entries = existing.map_or(&[][..], |cache| &cache.entries);
        // In each pair, the flag is true for an injected library.
        let mut entries: Vec<(bool, Entry)> = injected
            .iter()
            .map(|library| (true, new_entry(library, flags)))
            .chain(existing_entries.iter().map(|entry| (false, entry.clone())))
            .collect();
        // The sort is stable. So injected entries come before existing entries with the same key,
        // and the variants of a library stay in the order that ldconfig chose.
        entries.sort_by(|(_, a), (_, b)| compare_entries(a, b));
        entries.dedup_by(|(_, later_entry), (is_injected, first_entry)| {
            *is_injected && compare_entries(first_entry, later_entry) == Ordering::Equal
        });
        Self {
            entries: entries.into_iter().map(|(_, entry)| entry).collect(),
            generator: existing.and_then(|cache| cache.generator.clone()),
            hwcaps: existing.map_or_else(Vec::new, |cache| cache.hwcaps.clone()),
        }
    }
}

/// Compares two entries in the order of ld.so.cache: by soname, and then by flags. Both are in
/// descending order.
fn compare_entries(a: &Entry, b: &Entry) -> Ordering {
    soname_cmp(b.soname.to_bytes(), a.soname.to_bytes()).then_with(|| b.flags.cmp(&a.flags))
}

fn new_entry(library: &NewEntry, flags: Flags) -> Entry {
    Entry {
        flags,
        soname: library.soname.clone(),
        path: library.path.clone(),
        os_version: 0,
        hwcap: 0,
    }
}

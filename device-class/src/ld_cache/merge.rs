//! Merges injected libraries into a loader's cache.

use std::cmp::Ordering;

use super::{Abi, Entry, Flags, LdCache, NewEntry, soname_cmp};

impl LdCache {
    /// Returns a cache with the libraries `injected`, as libraries of `abi`, and with the entries
    /// of `existing` that they do not replace. An entry is replaced if it has the same ABI and, for
    /// the loader, the same soname. Its variants for hardware capabilities are replaced too,
    /// because the loader would prefer them.
    ///
    /// The result is sorted as the loader expects it. Of two injected libraries with the same
    /// soname only the first is added, because the loader would never use the second. Merging the
    /// same libraries again changes nothing.
    pub fn merge(existing: Option<&Self>, injected: &[NewEntry], abi: Abi) -> Self {
        let flags = Flags::from(abi);
        let existing_entries = existing.map_or(&[][..], |cache| &cache.entries);
        // The flag of a pair is true for an injected library.
        let mut entries: Vec<(bool, Entry)> = injected
            .iter()
            .map(|library| (true, new_entry(library, flags)))
            .chain(existing_entries.iter().map(|entry| (false, entry.clone())))
            .collect();
        // The sort is stable, so injected entries come before existing ones with the same key, and
        // the variants of one library keep the order that ldconfig chose.
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

/// Compares two entries in the order of a cache: first by soname, then by flags, both descending.
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

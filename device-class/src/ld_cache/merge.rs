//! Our libraries into a cache.

use std::cmp::Ordering;

use super::{Abi, Entry, Flags, LdCache, NewEntry, soname_cmp};

impl LdCache {
    /// The cache that has all of `add`, as libraries of `abi`, and all of `existing` that they
    /// don't replace: an entry goes if its ABI is the same and the loader takes its soname for
    /// the same, its variants for hardware capabilities included, because those come first.
    ///
    /// The result is sorted as the loader expects it. Of two libraries in `add` with one soname
    /// the first stays: the loader would never take the second. Merging twice changes nothing.
    pub fn merge(existing: Option<&Self>, add: &[NewEntry], abi: Abi) -> Self {
        let flags = Flags::from(abi);
        let theirs = existing.map_or(&[][..], |cache| &cache.entries);
        let mut entries: Vec<(bool, Entry)> = add
            .iter()
            .map(|new| (true, plain_entry(new, flags)))
            .chain(theirs.iter().map(|entry| (false, entry.clone())))
            .collect();
        // Stable: ours come first among equals, and theirs keep the order that ldconfig chose
        // among the variants of one library.
        entries.sort_by(|(_, a), (_, b)| cache_order(a, b));
        entries.dedup_by(|(_, later), (ours, first)| {
            *ours && cache_order(first, later) == Ordering::Equal
        });
        Self {
            entries: entries.into_iter().map(|(_, entry)| entry).collect(),
            generator: existing.and_then(|cache| cache.generator.clone()),
            hwcaps: existing.map_or_else(Vec::new, |cache| cache.hwcaps.clone()),
        }
    }
}

/// The order of a cache: both parts descending.
fn cache_order(a: &Entry, b: &Entry) -> Ordering {
    soname_cmp(b.soname.to_bytes(), a.soname.to_bytes()).then_with(|| b.flags.cmp(&a.flags))
}

fn plain_entry(new: &NewEntry, flags: Flags) -> Entry {
    Entry {
        flags,
        soname: new.soname.clone(),
        path: new.path.clone(),
        os_version: 0,
        hwcap: 0,
    }
}

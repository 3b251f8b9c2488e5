//! Merges injected libraries into a loader's cache.

use std::cmp::Ordering;

use super::{Abi, Entry, Flags, LdCache, NewEntry, soname_cmp};

impl LdCache {
    /// Returns a cache with all libraries of `add`, as libraries of `abi`, and with the entries of
    /// `existing` that they do not replace. An entry is replaced if its ABI is the same and the
    /// loader considers its soname the same, including its variants for hardware capabilities,
    /// because those come first.
    ///
    /// The result is sorted as the loader expects it. Of two libraries in `add` with the same
    /// soname the first is kept: the loader would never use the second. Merging twice changes
    /// nothing.
    pub fn merge(existing: Option<&Self>, add: &[NewEntry], abi: Abi) -> Self {
        let flags = Flags::from(abi);
        let theirs = existing.map_or(&[][..], |cache| &cache.entries);
        let mut entries: Vec<(bool, Entry)> = add
            .iter()
            .map(|new| (true, plain_entry(new, flags)))
            .chain(theirs.iter().map(|entry| (false, entry.clone())))
            .collect();
        // The sort is stable. Injected entries come first among equals, and the variants of one
        // library keep the order that ldconfig chose.
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

/// Compares two entries by the order of a cache: first the soname, then the hardware capabilities,
/// both descending.
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

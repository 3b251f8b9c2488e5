//! The work for the largest caches that an image can hold.

use super::*;
use crate::ld_cache::work;

/// The most bytes that may be read and compared for one container: every string once, and each
/// soname in about log2 n comparisons, each of which passes over both names up to twice.
const LIMIT: usize = MAX_CACHE_BYTES * (1 + 4 * MAX_ENTRIES.ilog2() as usize);

/// A cache of as many entries as fit with a soname of `length` bytes, in an order that is as
/// good as random (a fixed one: 7,919 is prime).
fn largest(length: usize, soname: impl Fn(usize) -> String) -> LdCache {
    let count = MAX_ENTRIES.min((MAX_CACHE_BYTES - 4096) / (length + 4 + ENTRY_SIZE));
    let shuffled = (0..count).map(|n| n * 7919 % count);
    let entries = shuffled.map(|n| entry(Abi::X86_64, &soname(n), "/a"));
    cache(entries.collect::<Vec<_>>())
}

#[test]
fn the_worst_files_cost_little() {
    let long = MAX_NAME_BYTES - 1;
    let short = MAX_CACHE_BYTES / MAX_ENTRIES - ENTRY_SIZE - 8;
    let prefix = "a".repeat(MAX_NAME_BYTES);
    let digits = "0".repeat(MAX_NAME_BYTES);
    let ours: Vec<_> = (0..500)
        .map(|n| new_entry(&format!("libours{n}.so.1"), "/ours"))
        .collect();
    let numbered =
        |length: usize, start: &str| largest(length, |n| format!("{}{n:06}", &start[..length - 6]));
    for (name, worst) in [
        ("few long names", numbered(long, &prefix)),
        ("many names", numbered(short, &prefix)),
        ("one name", largest(short, |_| prefix[..short].to_owned())),
        ("numbers", numbered(short, &digits)),
        ("one number", largest(short, |_| digits[..short].to_owned())),
        ("numbers of one digit", numbered(short, &"a0".repeat(short))),
    ] {
        let file = worst.to_bytes().unwrap();
        assert!(
            file.len() > MAX_CACHE_BYTES - MAX_CACHE_BYTES / 8,
            "{name}: {}",
            file.len()
        );
        work::take_count();
        let parsed = LdCache::parse(&file).unwrap();
        let merged = LdCache::merge(Some(&parsed), &ours, Abi::X86_64);
        let _ = merged.to_bytes();
        let done = work::take_count();
        assert!(
            (file.len() / 2..LIMIT).contains(&done),
            "{name}: {done} of {LIMIT}"
        );
    }
}

//! How long the work on one container takes. Printed, not asserted: run it in release as
//! `cargo test --release -p device-class ld_cache::tests::speed -- --ignored --nocapture`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::*;

/// The shortest of many runs.
fn shortest<T>(mut work: impl FnMut() -> T) -> Duration {
    (0..1000)
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed()
        })
        .min()
        .unwrap()
}

#[test]
#[ignore = "a measurement"]
fn merging_a_usual_cache() {
    let entries: Vec<_> = (0..549)
        .map(|n| {
            let name = format!("lib{}-usual.so.{n}", ["x11", "boost", "gtk", "ssl"][n % 4]);
            new_entry(&name, &format!("/usr/lib/x86_64-linux-gnu/{name}"))
        })
        .collect();
    let ours: Vec<_> = (0..40)
        .map(|n| {
            new_entry(
                &format!("libvendor{n}.so.1"),
                &format!("/opt/boathook/libvendor{n}.so.1"),
            )
        })
        .collect();
    let file = LdCache::merge(None, &entries, Abi::X86_64)
        .to_bytes()
        .unwrap();
    let cache = LdCache::parse(&file).unwrap();
    let merged = LdCache::merge(Some(&cache), &ours, Abi::X86_64);

    println!(
        "parse 549 entries   {:?}",
        shortest(|| LdCache::parse(&file))
    );
    println!(
        "merge 40 into them  {:?}",
        shortest(|| LdCache::merge(Some(&cache), &ours, Abi::X86_64))
    );
    println!("to bytes            {:?}", shortest(|| merged.to_bytes()));
    println!(
        "look up 40          {:?}",
        shortest(|| {
            ours.iter()
                .filter(|new| {
                    merged
                        .lookup_plain(OsStr::from_bytes(new.soname.to_bytes()), Abi::X86_64)
                        .is_some()
                })
                .count()
        })
    );
    println!(
        "all three           {:?}",
        shortest(|| {
            let cache = LdCache::parse(&file).ok();
            LdCache::merge(cache.as_ref(), &ours, Abi::X86_64).to_bytes()
        })
    );
}

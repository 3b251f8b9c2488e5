//! Every target with the files of its corpus, and with variations of each.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::TARGETS;

/// How many variations of one file are tried.
const VARIATIONS: usize = 50;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn files(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = directory().join(target);
    let entries = fs::read_dir(&directory).unwrap_or_else(|_| panic!("{}", directory.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// The file cut off, and with single bytes changed, at places spread over it.
fn variations(file: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let places =
        (0..VARIATIONS.min(file.len())).map(|n| n * file.len() / VARIATIONS.min(file.len()));
    places.flat_map(|place| {
        let mut changed = file.to_vec();
        changed[place] = changed[place].wrapping_add(1 << (place % 8));
        [file[..place].to_vec(), changed]
    })
}

#[test]
fn every_target_handles_its_corpus() {
    let mut failed = Vec::new();
    for target in TARGETS {
        let files = files(target.name);
        assert!(files.len() >= 3, "{}: {} files", target.name, files.len());
        for (path, file) in files {
            let run = || {
                crate::run(target.name, &file);
                variations(&file).for_each(|variation| crate::run(target.name, &variation));
            };
            if catch_unwind(run).is_err() {
                failed.push(format!("{}: {}", target.name, path.display()));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn no_corpus_is_without_its_target() {
    for entry in fs::read_dir(directory()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(name.to_str().and_then(crate::target).is_some(), "{name:?}");
    }
}

#[test]
fn ldconfig_reads_the_merged_caches() {
    let directory = tempfile::tempdir().unwrap();
    let mut merged = 0;
    for (path, bytes) in files("ld_cache") {
        let Some(written) = crate::ld_cache::merged_file(&bytes) else {
            continue;
        };
        merged += 1;
        let file = directory.path().join("ld.so.cache");
        fs::write(&file, written).unwrap();
        let ldconfig = Command::new("/sbin/ldconfig")
            .args(["-p", "-C"])
            .arg(&file)
            .output();
        match ldconfig {
            Ok(output) => {
                let printed = String::from_utf8_lossy(&output.stdout);
                let ours = "\tlibfuzz.so.1 (libc6,x86-64) => /ours/libfuzz.so.1\n";
                assert!(output.status.success(), "{}: {output:?}", path.display());
                assert!(printed.contains(ours), "{}: {printed}", path.display());
            }
            Err(error) => skip::report("ldconfig_reads_the_merged_caches", &error.to_string()),
        }
    }
    assert!(merged >= 2, "{merged} caches of the corpus can be merged");
}

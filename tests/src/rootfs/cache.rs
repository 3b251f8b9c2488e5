//! Cache of built root file systems in cargo's output directory, shared by all test processes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::tree::Tree;
use crate::{binaries, fingerprint};

/// Version of the builders in this module. Increment it when a builder produces another tree from
/// the same inputs.
const VERSION: &str = "3";

/// Returns the directory of the cached tree `name`, which `build` builds if it does not exist.
///
/// Each tree is built in a temporary directory and then renamed, so that a tree in the cache is
/// always complete. While one caller builds, other callers of the same name wait, in this process
/// and in others.
pub(crate) fn directory(
    name: &str,
    inputs: &[PathBuf],
    build: impl FnOnce(&Tree) -> Result<()>,
) -> Result<PathBuf> {
    let cache = binaries::target_directory()?.join("rootfs");
    let finished = cache.join(format!("{name}-{}", key(inputs)?));
    if finished.is_dir() {
        return Ok(finished);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock()?;
    if finished.is_dir() {
        return Ok(finished);
    }
    let unfinished = tempfile::tempdir_in(&cache)?;
    let tree = unfinished.path().join("tree");
    fs::create_dir(&tree)?;
    build(&Tree::new(&tree))
        .with_context(|| format!("cannot build the {name} root file system"))?;
    fs::rename(&tree, &finished)?;
    Ok(finished)
}

/// Returns a key that changes when an input file changes.
fn key(inputs: &[PathBuf]) -> Result<String> {
    let mut parts = vec![VERSION.as_bytes().to_vec()];
    for input in inputs {
        parts.push(identity(input)?);
    }
    Ok(fingerprint::of_parts(parts.iter().map(Vec::as_slice)))
}

fn identity(input: &Path) -> Result<Vec<u8>> {
    let metadata =
        fs::metadata(input).with_context(|| format!("cannot read {}", input.display()))?;
    Ok(format!(
        "{} {} {}",
        input.display(),
        metadata.len(),
        metadata.mtime()
    )
    .into_bytes())
}

//! Reduces the crates that `cargo vendor` has copied to the files that a build for Linux reads, so
//! that a source package contains no compiled program or library.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::components;

/// The file with the checksums of a crate's files. When cargo compiles the crate, it compares the
/// files with these checksums.
const CHECKSUMS_FILE: &str = ".cargo-checksum.json";
/// A file that every locked dependency must have, because cargo reads it even if the dependency is
/// not compiled.
const MANIFEST_FILE: &str = "Cargo.toml";
/// The extensions of compiled files. Some crates contain such files for Windows or WebAssembly, or
/// among their examples.
const COMPILED_EXTENSIONS: [&str; 8] = ["a", "dll", "exe", "lib", "o", "obj", "so", "wasm"];

/// Removes compiled files from the crates in the directory `vendor_dir`. If no build for `targets`
/// compiles a crate, only the manifest of the crate is kept.
pub(crate) fn prune_crates(vendor_dir: &Path, targets: &[String]) -> Result<()> {
    let compiled_packages = components::list_compiled_packages(targets)?;
    let mut has_compiled_crate = false;
    for entry in fs::read_dir(vendor_dir).with_context(|| vendor_dir.display().to_string())? {
        let crate_dir = entry?.path();
        let name = crate_dir.file_name().unwrap_or_default().to_string_lossy();
        if compiled_packages.contains(&*name) {
            remove_compiled_files(&crate_dir)?;
            has_compiled_crate = true;
        } else {
            reduce_to_manifest(&crate_dir)?;
        }
    }
    ensure!(
        has_compiled_crate,
        "{} has no crate that is compiled: it has to be made by cargo vendor --versioned-dirs",
        vendor_dir.display()
    );
    Ok(())
}

fn remove_compiled_files(crate_dir: &Path) -> Result<()> {
    let mut removed_files = BTreeSet::new();
    for path in list_files(crate_dir)? {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| COMPILED_EXTENSIONS.contains(&extension)) {
            fs::remove_file(&path)?;
            removed_files.insert(path.strip_prefix(crate_dir)?.to_string_lossy().into_owned());
        }
    }
    rewrite_checksums(crate_dir, |file| !removed_files.contains(file))
}

/// Removes all files of a crate except its manifest and checksums. Adds an empty library, because
/// cargo rejects a manifest without a target.
fn reduce_to_manifest(crate_dir: &Path) -> Result<()> {
    let manifest = fs::read(crate_dir.join(MANIFEST_FILE))?;
    rewrite_checksums(crate_dir, |file| file == MANIFEST_FILE)?;
    let checksums = fs::read(crate_dir.join(CHECKSUMS_FILE))?;
    fs::remove_dir_all(crate_dir)?;
    fs::create_dir_all(crate_dir.join("src"))?;
    fs::write(crate_dir.join("src/lib.rs"), "")?;
    fs::write(crate_dir.join(MANIFEST_FILE), manifest)?;
    fs::write(crate_dir.join(CHECKSUMS_FILE), checksums)?;
    Ok(())
}

/// Removes the checksums of files for which `is_kept` returns `false`, so that cargo does not
/// expect these files.
fn rewrite_checksums(crate_dir: &Path, is_kept: impl Fn(&str) -> bool) -> Result<()> {
    let path = crate_dir.join(CHECKSUMS_FILE);
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    let mut checksums: Value = serde_json::from_slice(&text)?;
    let files = checksums["files"].as_object_mut();
    let files = files.with_context(|| format!("{}: no list of files", path.display()))?;
    files.retain(|file, _| is_kept(file));
    fs::write(&path, checksums.to_string())?;
    Ok(())
}

fn list_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(list_files(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn make_crate() -> tempfile::TempDir {
        let crate_dir = tempfile::tempdir().unwrap();
        let files = ["Cargo.toml", "src/code.rs", "lib/code.o", "code.s"];
        let mut sums = serde_json::Map::new();
        for file in files {
            let path = crate_dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
            sums.insert(file.to_owned(), json!("a sum"));
        }
        let checksums = json!({"files": sums, "package": "the crate's sum"});
        fs::write(crate_dir.path().join(CHECKSUMS_FILE), checksums.to_string()).unwrap();
        crate_dir
    }

    /// Returns the files of a crate, and those of them that have a checksum.
    fn content(crate_dir: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
        let present = list_files(crate_dir).unwrap().into_iter();
        let present = present.map(|path| path.strip_prefix(crate_dir).unwrap().to_owned());
        let text = fs::read(crate_dir.join(CHECKSUMS_FILE)).unwrap();
        let checksums: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(checksums["package"], "the crate's sum");
        let listed = checksums["files"].as_object().unwrap().keys().cloned();
        let present = present.map(|path| path.to_string_lossy().into_owned());
        (present.collect(), listed.collect())
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn a_compiled_crate_loses_its_finished_files_alone() {
        let crate_dir = make_crate();
        remove_compiled_files(crate_dir.path()).unwrap();
        let (present, listed) = content(crate_dir.path());
        assert_eq!(listed, names(["Cargo.toml", "src/code.rs", "code.s"]));
        assert_eq!(&present - &listed, names([CHECKSUMS_FILE]));
    }

    #[test]
    fn a_crate_of_other_systems_is_a_manifest() {
        let crate_dir = make_crate();
        reduce_to_manifest(crate_dir.path()).unwrap();
        let (present, listed) = content(crate_dir.path());
        assert_eq!(listed, names([MANIFEST_FILE]));
        assert_eq!(
            present,
            names([CHECKSUMS_FILE, MANIFEST_FILE, "src/lib.rs"])
        );
    }
}

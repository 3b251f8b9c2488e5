//! Directory trees as values, for comparing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use runtime_config::HostRoot;

/// Returns every path below `root` with its mode, its owner, and its content or link target.
pub(crate) fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    walk(root, root, &mut |path, relative| {
        let meta = path.symlink_metadata().unwrap();
        let content = match meta.file_type() {
            t if t.is_symlink() => format!("-> {}", fs::read_link(path).unwrap().display()),
            t if t.is_file() => format!("{:?}", content(path)),
            _ => "directory".into(),
        };
        let about = format!("{:o} {}:{} {content}", meta.mode(), meta.uid(), meta.gid());
        found.insert(relative.to_owned(), about);
    });
    found
}

/// Returns the regular files below `root` with their texts.
pub(crate) fn files(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    walk(root, root, &mut |path, relative| {
        if path.is_file() {
            let text = String::from_utf8_lossy(&content(path)).into_owned();
            found.insert(relative.to_owned(), text);
        }
    });
    found
}

/// Returns the content of a file. That of a class index has the times of files, which differ between
/// two trees, so that it is left out.
fn content(path: &Path) -> Vec<u8> {
    if path.ends_with("classes.d/.classes.json") {
        return Vec::new();
    }
    fs::read(path).unwrap()
}

/// Makes a host with one file.
pub(crate) fn host_with(path: &str, text: &str) -> (tempfile::TempDir, HostRoot) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
    let host = HostRoot::open(dir.path()).unwrap();
    (dir, host)
}

/// Copies the files of a tree. A tree that does not exist is like an empty one.
pub(crate) fn copy(from: &Path, to: &Path) {
    for (path, text) in files(from) {
        let target = to.join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, text).unwrap();
    }
}

fn walk(root: &Path, dir: &Path, visit: &mut impl FnMut(&Path, &Path)) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        visit(&path, path.strip_prefix(root).unwrap());
        if path.is_dir() && !path.is_symlink() {
            walk(root, &path, visit);
        }
    }
}

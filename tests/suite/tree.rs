//! Directory trees as text, to compare them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use harness::fingerprint;

/// Fails, with the differences, unless `top` is as it was listed before.
#[track_caller]
pub(crate) fn assert_unchanged(top: &Path, before: &[String], case: &str) {
    let after = listing(top);
    let gone = before.iter().filter(|line| !after.contains(line));
    let new = after.iter().filter(|line| !before.contains(line));
    let gone: Vec<_> = gone.map(|line| format!("- {line}")).collect();
    let new: Vec<_> = new.map(|line| format!("+ {line}")).collect();
    let changes = [gone, new].concat();
    assert!(
        changes.is_empty(),
        "{case}: {}\n{}",
        top.display(),
        changes.join("\n")
    );
}

/// A line for everything in `top`, sorted: path, mode, owner, and the contents'
/// fingerprint or the link's target. A host's log is left out.
pub(crate) fn listing(top: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![top.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("run/boathook") {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).unwrap();
            let contents = if metadata.is_dir() {
                waiting.push(path.clone());
                String::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if metadata.is_file() {
                fingerprint::of_file(&path).unwrap()
            } else {
                format!("device {}", metadata.rdev())
            };
            let below = path.strip_prefix(top).unwrap().display();
            lines.push(format!(
                "/{below} {:o} {} {contents}",
                metadata.mode(),
                metadata.uid()
            ));
        }
    }
    lines.sort();
    lines
}

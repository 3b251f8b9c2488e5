//! Finds the files of containerd's configuration in the order in which containerd reads them:
//! the main file first, then the imported files, breadth first.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::HostRoot;
use crate::snapshot::Snapshot;
use crate::toml_text::parse;

/// The maximum number of configuration files that are read. Further files are ignored. A real
/// configuration has fewer.
const MAX_FILES: usize = 256;

/// Reads a configuration file, and all files that it imports, into the snapshot.
pub(crate) fn read(host: &HostRoot, main: &Path, snapshot: &mut Snapshot) -> Result<(), Error> {
    let mut pending = VecDeque::from([main.to_path_buf()]);
    let mut seen = Vec::new();
    while let Some(path) = pending.pop_front() {
        if seen.contains(&path) || seen.len() == MAX_FILES {
            continue;
        }
        seen.push(path.clone());
        let Some(text) = snapshot.read(host, &path)? else {
            continue;
        };
        // A file that does not parse is reported later, when the plan is made.
        for pattern in import_patterns(&path, text).unwrap_or_default() {
            let dir = pattern.parent().unwrap_or(&pattern);
            let names = host.list(dir)?;
            pending.extend(
                names
                    .iter()
                    .map(|n| dir.join(n))
                    .filter(|p| matches_pattern(&pattern, p)),
            );
        }
    }
    Ok(())
}

/// Returns the files of a snapshot that containerd reads, in containerd's order.
pub(crate) fn in_load_order(base: &Snapshot, main: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut pending = VecDeque::from([main.to_path_buf()]);
    let mut order: Vec<PathBuf> = Vec::new();
    while let Some(path) = pending.pop_front() {
        let Some(text) = base.text(&path).filter(|_| !order.contains(&path)) else {
            continue;
        };
        for pattern in import_patterns(&path, text)? {
            let files = base
                .present()
                .map(|(p, _)| p)
                .filter(|p| matches_pattern(&pattern, p));
            pending.extend(files.map(Path::to_path_buf));
        }
        order.push(path);
    }
    Ok(order)
}

/// Returns whether a file imports the path `wanted`.
pub(crate) fn imports(path: &Path, text: &str, wanted: &Path) -> Result<bool, Error> {
    Ok(import_patterns(path, text)?
        .iter()
        .any(|pattern| matches_pattern(pattern, wanted)))
}

/// Returns the patterns in a file's `imports`. Relative patterns are relative to the file's
/// directory.
fn import_patterns(path: &Path, text: &str) -> Result<Vec<PathBuf>, Error> {
    let doc = parse(path, text)?;
    let dir = path.parent().unwrap_or(path);
    let list = doc.get("imports").and_then(|l| l.as_array());
    let strings = list
        .into_iter()
        .flat_map(|l| l.iter())
        .filter_map(|v| v.as_str());
    Ok(strings.map(|pattern| dir.join(pattern)).collect())
}

/// Returns whether a path matches a pattern with `*` and `?` in its last name.
fn matches_pattern(pattern: &Path, path: &Path) -> bool {
    let (Some(glob), Some(name)) = (pattern.file_name(), path.file_name()) else {
        return false;
    };
    pattern.parent() == path.parent()
        && name_matches(glob.as_encoded_bytes(), name.as_encoded_bytes())
}

fn name_matches(glob: &[u8], name: &[u8]) -> bool {
    match (glob.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => name_matches(rest, name),
        (Some((b'*', rest)), Some((_, tail))) => {
            name_matches(rest, name) || name_matches(glob, tail)
        }
        (Some((g, rest)), Some((n, tail))) => (g == n || *g == b'?') && name_matches(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_same_paths_as_in_containerd() {
        let cases = [
            ("/etc/c/*.toml", "/etc/c/99-boathook.toml", true),
            ("/etc/c/99-?oathook.toml", "/etc/c/99-boathook.toml", true),
            ("/etc/c/99-boathook.toml", "/etc/c/99-boathook.toml", true),
            ("/etc/c/*.toml", "/etc/c/d/99-boathook.toml", false),
            ("/etc/c/10-*.toml", "/etc/c/99-boathook.toml", false),
            ("/etc/c/*.conf", "/etc/c/99-boathook.toml", false),
        ];
        for (pattern, path, expected) in cases {
            let found = matches_pattern(Path::new(pattern), Path::new(path));
            assert_eq!(found, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn each_imported_file_is_read_once_in_breadth_first_order() {
        let mut base = Snapshot::default();
        let mut set = |path: &str, text: &str| base.set(Path::new(path), Some(text.into()));
        let imports = "imports = [\"conf.d/*.toml\", \"/c/config.toml\"]";
        set("/c/config.toml", imports);
        set("/c/conf.d/b.toml", "imports = [\"/c/last.toml\"]");
        set("/c/conf.d/a.toml", "");
        set("/c/last.toml", "");
        set("/c/unrelated.toml", "");
        let order = in_load_order(&base, Path::new("/c/config.toml")).unwrap();
        let names: Vec<_> = order.iter().map(|p| p.to_str().unwrap()).collect();
        let expected = "/c/config.toml /c/conf.d/a.toml /c/conf.d/b.toml /c/last.toml";
        assert_eq!(names.join(" "), expected);
    }
}

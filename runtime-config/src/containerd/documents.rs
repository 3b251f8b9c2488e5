//! Finds the files of containerd's configuration, in the order in which containerd reads them:
//! first the main file, then the files that it imports, then the files that those import.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::HostRoot;
use crate::snapshot::Snapshot;
use crate::toml_text::parse_document;

/// The maximum number of configuration files that are read. Files beyond this number are ignored.
/// Configurations of real hosts have far fewer files.
const MAX_CONFIG_FILES: usize = 256;

/// Reads into the snapshot a configuration file and all files that it imports, directly or
/// indirectly.
pub(crate) fn read_file_and_imports(
    host: &HostRoot,
    main_path: &Path,
    snapshot: &mut Snapshot,
) -> Result<(), Error> {
    let mut pending_paths = VecDeque::from([main_path.to_path_buf()]);
    let mut seen_paths = Vec::new();
    while let Some(path) = pending_paths.pop_front() {
        if seen_paths.contains(&path) || seen_paths.len() == MAX_CONFIG_FILES {
            continue;
        }
        seen_paths.push(path.clone());
        let Some(text) = snapshot.read(host, &path)? else {
            continue;
        };
        // A file that does not parse is reported later, when the plan is made.
        for pattern in parse_import_patterns(&path, text).unwrap_or_default() {
            let dir = pattern.parent().unwrap_or(&pattern);
            let names = host.list(dir)?;
            pending_paths.extend(
                names
                    .iter()
                    .map(|name| dir.join(name))
                    .filter(|path| matches_pattern(&pattern, path)),
            );
        }
    }
    Ok(())
}

/// Returns the files of the snapshot that containerd reads, in the order in which containerd reads
/// them.
pub(crate) fn list_files_in_load_order(
    snapshot: &Snapshot,
    main_path: &Path,
) -> Result<Vec<PathBuf>, Error> {
    let mut pending_paths = VecDeque::from([main_path.to_path_buf()]);
    let mut ordered_paths: Vec<PathBuf> = Vec::new();
    while let Some(path) = pending_paths.pop_front() {
        let Some(text) = snapshot
            .get_text(&path)
            .filter(|_| !ordered_paths.contains(&path))
        else {
            continue;
        };
        for pattern in parse_import_patterns(&path, text)? {
            let files = snapshot
                .existing_files()
                .map(|(path, _)| path)
                .filter(|path| matches_pattern(&pattern, path));
            pending_paths.extend(files.map(Path::to_path_buf));
        }
        ordered_paths.push(path);
    }
    Ok(ordered_paths)
}

/// Returns whether the configuration file `path`, whose text is `text`, imports `imported_path`.
pub(crate) fn imports_file(path: &Path, text: &str, imported_path: &Path) -> Result<bool, Error> {
    Ok(parse_import_patterns(path, text)?
        .iter()
        .any(|pattern| matches_pattern(pattern, imported_path)))
}

/// Returns the absolute paths of the patterns in the list `imports` of a file. A relative pattern
/// is relative to the directory of the file.
fn parse_import_patterns(path: &Path, text: &str) -> Result<Vec<PathBuf>, Error> {
    let doc = parse_document(path, text)?;
    let dir = path.parent().unwrap_or(path);
    let imports = doc.get("imports").and_then(|array| array.as_array());
    let patterns = imports
        .into_iter()
        .flat_map(|array| array.iter())
        .filter_map(|value| value.as_str());
    Ok(patterns.map(|pattern| dir.join(pattern)).collect())
}

/// Returns whether a path matches a pattern. Only the last component of the pattern may have the
/// wildcards `*` and `?`.
fn matches_pattern(pattern: &Path, path: &Path) -> bool {
    let (Some(glob), Some(name)) = (pattern.file_name(), path.file_name()) else {
        return false;
    };
    pattern.parent() == path.parent()
        && matches_glob(glob.as_encoded_bytes(), name.as_encoded_bytes())
}

fn matches_glob(glob: &[u8], name: &[u8]) -> bool {
    match (glob.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', glob_rest)), None) => matches_glob(glob_rest, name),
        (Some((b'*', glob_rest)), Some((_, name_rest))) => {
            matches_glob(glob_rest, name) || matches_glob(glob, name_rest)
        }
        (Some((glob_byte, glob_rest)), Some((name_byte, name_rest))) => {
            (glob_byte == name_byte || *glob_byte == b'?') && matches_glob(glob_rest, name_rest)
        }
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
        let mut snapshot = Snapshot::default();
        let mut set =
            |path: &str, text: &str| snapshot.set_text(Path::new(path), Some(text.into()));
        let imports = "imports = [\"conf.d/*.toml\", \"/c/config.toml\"]";
        set("/c/config.toml", imports);
        set("/c/conf.d/b.toml", "imports = [\"/c/last.toml\"]");
        set("/c/conf.d/a.toml", "");
        set("/c/last.toml", "");
        set("/c/unrelated.toml", "");
        let order = list_files_in_load_order(&snapshot, Path::new("/c/config.toml")).unwrap();
        let names: Vec<_> = order.iter().map(|p| p.to_str().unwrap()).collect();
        let expected = "/c/config.toml /c/conf.d/a.toml /c/conf.d/b.toml /c/last.toml";
        assert_eq!(names.join(" "), expected);
    }
}

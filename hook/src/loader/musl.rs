//! Generates the configuration file of musl's loader, so that it finds the hook's libraries.
//!
//! `/etc/ld-musl-ARCH.path` lists directories, separated by newlines or colons. The loader searches
//! them after the RPATH of the program. If the file exists, even an empty file, the loader does
//! *not* use its built-in list. So a new file must repeat the built-in list. Otherwise the
//! container's programs do not find the container's own libraries.

use super::LibraryDir;

/// The directories that musl searches if the configuration file does not exist, in this order
/// (`ldso/dynlink.c` of musl).
const BUILT_IN_DIR_LIST: &[u8] = b"/lib\n/usr/local/lib\n/usr/lib\n";

/// Returns the path of the configuration file for an architecture, such as
/// `/etc/ld-musl-x86_64.path`.
pub(crate) fn config_file_path(arch: &str) -> String {
    format!("/etc/ld-musl-{arch}.path")
}

/// Returns a new content for the configuration file that makes musl's loader search `directories`.
/// Returns `None` if the existing content already lists all of them.
///
/// Missing directories are inserted at the beginning, in their order. The rest is not changed. If
/// the file is empty, it gets only the missing directories.
pub(crate) fn update_path_file(
    existing_content: Option<&[u8]>,
    directories: &[LibraryDir],
) -> Option<Vec<u8>> {
    let old_content = existing_content.unwrap_or(BUILT_IN_DIR_LIST);
    // musl's loader reads the file as a C string, which ends at the first NUL byte.
    let effective_content = old_content
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    let listed_dirs: Vec<&[u8]> = effective_content
        .split(|byte| matches!(byte, b'\n' | b':'))
        .collect();
    let missing_dirs: Vec<&LibraryDir> = directories
        .iter()
        .filter(|directory| !listed_dirs.contains(&directory.as_bytes()))
        .collect();
    if missing_dirs.is_empty() {
        return None;
    }
    let missing_lines = missing_dirs
        .iter()
        .flat_map(|directory| [directory.as_bytes(), b"\n"]);
    Some(
        missing_lines
            .chain([old_content])
            .flatten()
            .copied()
            .collect(),
    )
}

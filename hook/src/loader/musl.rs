//! The configuration of musl's loader.
//!
//! `/etc/ld-musl-ARCH.path` lists directories, separated by newlines or colons, that are
//! searched after RPATH. If the file exists it *replaces* the built-in list, even if it is
//! empty. A new file must therefore repeat the built-in list, or the programs of the container
//! do not find the container's own libraries.

use super::LibraryDir;

/// The list that is built into musl (`ldso/dynlink.c`), in the same order.
const BUILT_IN: &[u8] = b"/lib\n/usr/local/lib\n/usr/lib\n";

/// Returns the path of the configuration file for an architecture, in musl's notation.
pub(crate) fn path_file(arch: &str) -> String {
    format!("/etc/ld-musl-{arch}.path")
}

/// Returns the text that the file must have so that `directories` are searched, or `None` if
/// it already lists all of them at any position.
///
/// Missing directories are inserted at the beginning, in their order. The rest is kept byte
/// for byte. An empty file gets only the missing directories.
pub(crate) fn path(existing: Option<&[u8]>, directories: &[LibraryDir]) -> Option<Vec<u8>> {
    let rest = existing.unwrap_or(BUILT_IN);
    // The loader reads the file as a C string, which ends at the first NUL.
    let read = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let listed: Vec<&[u8]> = read.split(|byte| matches!(byte, b'\n' | b':')).collect();
    let missing: Vec<&LibraryDir> = directories
        .iter()
        .filter(|directory| !listed.contains(&directory.as_bytes()))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let ours = missing
        .iter()
        .flat_map(|directory| [directory.as_bytes(), b"\n"]);
    Some(ours.chain([rest]).flatten().copied().collect())
}

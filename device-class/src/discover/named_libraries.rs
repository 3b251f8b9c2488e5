//! Finds libraries by the absolute paths in other files. For example, the loaders of Vulkan and EGL
//! find a driver by a manifest, a JSON file with the path of the driver's library.

use std::path::PathBuf;

use super::driver_root::DriverRoot;
use super::files;
use super::found::{FoundEdits, FoundFile, PathLookup};
use crate::class::{FileKind, SoName, is_plain_path};
use crate::host::MAX_ATTRIBUTE_BYTES;

/// The maximum number of libraries that are taken from one file. Further paths in the file are
/// ignored.
const MAX_NAMED_LIBRARIES: usize = 16;

/// Adds the libraries whose absolute paths are in `file`. Each gets the same path in the container,
/// because programs open this path. A library that the host lacks is optional. A file that is not
/// UTF-8 names no libraries.
pub(super) fn add_named_libraries(
    file: &FoundFile,
    driver_root: DriverRoot<'_>,
    found_edits: &mut FoundEdits,
) {
    if !matches!(file.file, PathLookup::Found(_)) {
        return;
    }
    let bytes = driver_root.view.read(&file.path, MAX_ATTRIBUTE_BYTES);
    let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let paths = text.iter().flat_map(|text| list_library_paths(text));
    for path in paths.take(MAX_NAMED_LIBRARIES).map(PathBuf::from) {
        let mut known_files = found_edits.files.iter();
        if known_files.any(|known_file| known_file.container_path == path) {
            continue;
        }
        let library = files::look_up_file(&path, &[FileKind::File], true, driver_root);
        if !matches!(library, PathLookup::Unusable(_)) {
            found_edits.files.push(FoundFile {
                container_path: path.clone(),
                path,
                is_program: false,
                is_optional: true,
                file: library,
            });
        }
    }
}

/// Returns the absolute paths of shared libraries in a text. A path ends at a quote, a comma or
/// white space. So paths are found in JSON and in a file with one path on each line.
fn list_library_paths(text: &str) -> impl Iterator<Item = &str> {
    let is_separator = |c: char| c.is_whitespace() || "\"',".contains(c);
    let is_library = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        is_plain_path(path) && SoName::try_from(name.to_owned()).is_ok()
    };
    text.split(is_separator).filter(is_library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_of_libraries_are_taken() {
        for (text, expected) in [
            (
                r#"{"ICD": {"library_path": "/usr/lib64/libGLX_x.so.0", "api_version": "1.4"}}"#,
                &["/usr/lib64/libGLX_x.so.0"][..],
            ),
            (
                r#"{"a":["/lib/liba.so","/lib/libb.so.1"]}"#,
                &["/lib/liba.so", "/lib/libb.so.1"],
            ),
            (
                "/nix/store/x/lib/libopencl.so.1\n",
                &["/nix/store/x/lib/libopencl.so.1"],
            ),
            (r#"{"library_path": "libGLX_x.so.0"}"#, &[]),
            (r#""/etc/shadow" "/lib/../libx.so" "./libx.so""#, &[]),
        ] {
            let paths: Vec<&str> = list_library_paths(text).collect();
            assert_eq!(paths, expected, "{text}");
        }
    }
}

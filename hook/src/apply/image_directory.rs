//! Finds the directory that contains the libraries of the container's image, such as `/usr/lib64`.
//!
//! The result must be the same at each start of a container, although the hook may have added files
//! at an earlier start. The hook adds only directories and symbolic links to library directories.
//! So the module searches for a directory that contains a library as a regular file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use device_class::host::ProgramAbi;

use crate::container::{Directory, FileKind, FileName, Handle};

/// The usual library directories: first that of Debian and Ubuntu, then that of Fedora, SUSE and
/// Arch, then that of Alpine. The first one that contains a library of the image is used. If none
/// does, the last one is used.
pub(crate) const IMAGE_LIBRARY_DIRS: [&str; 3] = if cfg!(target_arch = "aarch64") {
    ["/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
} else {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
};

/// The usual directories for the libraries of 32-bit programs: first that of Debian and Ubuntu,
/// then that of Fedora. The first one that contains a library of the image is used. If none does,
/// the last one is used.
const IMAGE_LIBRARY_DIRS_32BIT: [&str; 2] = ["/usr/lib/i386-linux-gnu", "/usr/lib"];

/// The maximum number of directory entries that are examined, because a directory of a hostile
/// image may have millions. In the largest real images, a directory has a few thousand.
const MAX_ENTRIES: usize = 65_536;

/// Returns the image's library directory for native or 32-bit programs: the first usual directory
/// that contains a library of the image. If none does, returns the last one, which may not exist
/// yet. `open_file` opens a path in the image.
pub fn find_image_directory(
    programs: ProgramAbi,
    mut open_file: impl FnMut(&Path) -> Option<Handle>,
) -> &'static Path {
    let directories: &[&str] = match programs {
        ProgramAbi::Native => &IMAGE_LIBRARY_DIRS,
        ProgramAbi::Bits32 => &IMAGE_LIBRARY_DIRS_32BIT,
    };
    let mut directories = directories.iter().map(Path::new);
    let last_directory = directories.next_back().unwrap_or(Path::new("/"));
    directories
        .find(|path| open_file(path).is_some_and(|file| has_library(file, path)))
        .unwrap_or(last_directory)
}

/// Reports whether `file` is a directory that contains a library as a regular file. Symbolic links
/// do not count, because the hook may have created them at an earlier start.
fn has_library(file: Handle, path: &Path) -> bool {
    if file.kind() != FileKind::Directory {
        return false;
    }
    let directory = Directory::new(file.into_fd(), path);
    let is_library = |name: &OsStr| {
        is_library_name(name)
            && FileName::new(name).is_ok_and(|name| {
                let entry = directory.open(name).ok().flatten();
                entry.is_some_and(|entry| entry.kind() == FileKind::Regular)
            })
    };
    directory
        .has_entry(MAX_ENTRIES, is_library)
        .unwrap_or_default()
}

/// Reports whether a file name is that of a library, such as `libx.so`, `libc.so.6` or
/// `ld-linux-x86-64.so.2`.
fn is_library_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".so") || name.windows(4).any(|part| part == b".so.")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::container::{Resolver, RootDir};

    #[test]
    fn a_directory_counts_by_the_libraries_of_the_image() {
        let [multiarch, lib64, lib] = IMAGE_LIBRARY_DIRS;
        let [multiarch_32bit, lib_32bit] = IMAGE_LIBRARY_DIRS_32BIT;
        for (files, expected, expected_32bit) in [
            (&[][..], lib, lib_32bit),
            (&[(lib64, "libc.so.6")], lib64, lib_32bit),
            (&[(lib, "libz.so")], lib, lib_32bit),
            (
                &[(multiarch, "libz.so.1.3"), (lib64, "libc.so.6")],
                multiarch,
                lib_32bit,
            ),
            // The hook creates modules in directories, and links to libraries.
            (
                &[(multiarch, "x/xorg/driver.so"), (lib64, "libc.so.6")],
                lib64,
                lib_32bit,
            ),
            (
                &[(multiarch, "-> libz.so.1"), (lib64, "libc.so.6")],
                lib64,
                lib_32bit,
            ),
            (
                &[(lib64, "ld.so.d/notes"), (lib64, "notes")],
                lib,
                lib_32bit,
            ),
            (&[(multiarch_32bit, "gbm/x_gbm.so")], lib, lib_32bit),
            (&[(multiarch_32bit, "ld-linux.so.2")], lib, multiarch_32bit),
        ] {
            let rootfs = tempfile::tempdir().unwrap();
            for (directory, name) in files {
                let directory = rootfs.path().join(directory.trim_start_matches('/'));
                let path = directory.join(name.trim_start_matches("-> "));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                if name.starts_with("-> ") {
                    symlink("/usr/lib/boathook/lib/libz.so.1", path).unwrap();
                } else {
                    fs::write(path, "").unwrap();
                }
            }
            let root = RootDir::open(rootfs.path(), Resolver::Walk).unwrap();
            let find = |programs| find_image_directory(programs, |path| root.lookup(path).unwrap());
            assert_eq!(find(ProgramAbi::Native), Path::new(expected), "{files:?}");
            let found = find(ProgramAbi::Bits32);
            assert_eq!(found, Path::new(expected_32bit), "{files:?}");
        }
    }
}

//! Configures the container's dynamic loaders so that they find the injected libraries. Never
//! executes a program of the container, not even `ldconfig`, because the image may be hostile.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use device_class::discover::ImageLibraries;
use device_class::ld_cache::{Abi, LdCache, MAX_CACHE_BYTES, NewEntry};
use nix::sys::stat::Mode;

use super::{ApplyError, image_libraries};
use crate::container::{self, ContainerRoot};
use crate::loader::{LibraryDir, LibraryDirError, Loader, find_loaders, glibc, musl};

/// The paths of the dynamic loaders of glibc and musl on this architecture. The psABI and musl
/// define these paths. Programs contain the path of their loader (PT_INTERP).
const INTERPRETER_PATHS: [&str; 2] = if cfg!(target_arch = "aarch64") {
    ["/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"]
} else {
    ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"]
};

/// The path of the dynamic loader for 32-bit programs. `None` means that Boathook does not support
/// such programs on this architecture.
const INTERPRETER_PATH_32BIT: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("/lib/ld-linux.so.2")
} else {
    None
};

/// The path of the file in a container in which glibc caches the paths of libraries (ldconfig(8)).
const LD_CACHE_PATH: &str = "/etc/ld.so.cache";

/// The maximum size in bytes of a loader's configuration file. A container with a larger file does
/// not start.
const MAX_CONF_BYTES: usize = 1 << 20;

const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);

/// The library directories and the libraries that the container's dynamic loaders must find. Each
/// library has a file name, such as `libx.so.1`, and a path.
pub struct LibrarySearch<'p> {
    pub(super) directories: Cow<'p, [PathBuf]>,
    pub(super) libraries: Cow<'p, [(String, PathBuf)]>,
    pub(super) image_libraries: &'p [ImageLibraries],
    /// The directories in the container's `LD_LIBRARY_PATH`, which loaders search first.
    pub library_path_dirs: &'p [PathBuf],
    pub directory_32bit: Option<&'p Path>,
    pub(super) libraries_32bit: &'p [(String, PathBuf)],
}

/// Edits the configuration files of a container's dynamic loaders. If a file cannot be written, the
/// error is collected for a warning, and the container starts without this change.
struct LoaderFiles<'r> {
    root: &'r ContainerRoot,
    write_errors: Vec<container::Error>,
}

/// Configures every dynamic loader of the container. A container without a loader has only
/// statically linked programs, and needs no configuration.
///
/// If a configuration file cannot be written, a warning is added, and the container still starts.
/// Its user can set `LD_LIBRARY_PATH`, so that programs find the libraries.
///
/// Returns the directories of the image whose libraries are newer than those of the host.
pub(super) fn configure_loaders(
    root: &ContainerRoot,
    mut search: LibrarySearch<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<PathBuf>, ApplyError> {
    let mut newer_directories = Vec::new();
    for image in image_libraries::find_newer_libraries(root, search.image_libraries, warnings) {
        newer_directories.push(image.directory.clone());
        search.directories.to_mut().insert(0, image.directory);
        let libraries = search.libraries.to_mut();
        libraries.splice(0..0, image.libraries);
    }
    let search = &search;
    let mut files = LoaderFiles {
        root,
        write_errors: Vec::new(),
    };
    let native_directories = to_library_dirs(as_paths(&search.directories))?;
    for loader in find_loaders(find_interpreters(root, search)?) {
        match loader {
            Loader::Glibc => {
                // The list may contain directories with 32-bit and with 64-bit libraries, because
                // ldconfig distinguishes the libraries by their ELF headers.
                let all_directories = [
                    native_directories.as_slice(),
                    &to_library_dirs(search.directory_32bit)?,
                ];
                configure_glibc(&mut files, &all_directories.concat())?;
                extend_ld_cache(&mut files, search, warnings)?;
            }
            Loader::Musl { arch } => {
                let file = musl::config_file_path(&arch);
                files.edit_file(&file, MAX_CONF_BYTES, |text| {
                    Ok(musl::update_path_file(text, &native_directories))
                })?;
            }
        }
    }
    warnings.extend(files.describe_write_errors(search));
    Ok(newer_directories)
}

/// Returns the file names of the dynamic loaders that the container has, such as
/// `ld-linux-x86-64.so.2`.
fn find_interpreters(
    root: &ContainerRoot,
    search: &LibrarySearch<'_>,
) -> Result<Vec<&'static str>, ApplyError> {
    let interpreter_32bit = search.directory_32bit.and(INTERPRETER_PATH_32BIT);
    let mut names = Vec::new();
    for path in INTERPRETER_PATHS.iter().copied().chain(interpreter_32bit) {
        if root.resolve(Path::new(path))?.is_some() {
            names.extend(path.rsplit('/').next());
        }
    }
    Ok(names)
}

fn as_paths(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    paths.iter().map(PathBuf::as_path)
}

fn to_library_dirs<'p>(
    paths: impl IntoIterator<Item = &'p Path>,
) -> Result<Vec<LibraryDir>, LibraryDirError> {
    paths.into_iter().map(LibraryDir::new).collect()
}

/// Writes the configuration files of `ldconfig`. If a program of the container runs `ldconfig`, the
/// injected libraries then stay in the new cache.
fn configure_glibc(
    files: &mut LoaderFiles<'_>,
    directories: &[LibraryDir],
) -> Result<(), ApplyError> {
    let drop_in = glibc::generate_drop_in(directories);
    files.edit_file(glibc::DROP_IN_PATH, MAX_CONF_BYTES, |text| {
        Ok((text != Some(&drop_in)).then_some(drop_in))
    })?;
    files.edit_file(glibc::LD_SO_CONF_PATH, MAX_CONF_BYTES, |text| {
        Ok(glibc::update_ld_so_conf(text))
    })
}

/// Adds the injected libraries to glibc's cache `/etc/ld.so.cache`, so that the loader finds them
/// even before `ldconfig` is run in the container.
fn extend_ld_cache(
    files: &mut LoaderFiles<'_>,
    search: &LibrarySearch<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), ApplyError> {
    files.edit_file(LD_CACHE_PATH, MAX_CACHE_BYTES, |bytes| {
        let existing_cache = match bytes.map(LdCache::parse) {
            None => None,
            Some(Ok(cache)) => Some(cache),
            Some(Err(error)) => {
                warnings.push(format!(
                    "the image's {LD_CACHE_PATH} is invalid and is created again: {error}"
                ));
                None
            }
        };
        let mut merged_cache = LdCache::merge(
            existing_cache.as_ref(),
            &to_cache_entries(&search.libraries),
            Abi::NATIVE,
        );
        if let (Some(abi), false) = (Abi::BITS_32, search.libraries_32bit.is_empty()) {
            merged_cache = LdCache::merge(
                Some(&merged_cache),
                &to_cache_entries(search.libraries_32bit),
                abi,
            );
        }
        let merged_cache = merged_cache.to_bytes()?;
        Ok((bytes != Some(&merged_cache)).then_some(merged_cache))
    })
}

fn to_cache_entries(libraries: &[(String, PathBuf)]) -> Vec<NewEntry> {
    libraries
        .iter()
        .filter_map(|(name, path)| NewEntry::new(name, path).ok())
        .collect()
}

impl LoaderFiles<'_> {
    /// Replaces the content of the file `path` by the result of `generate`. `generate` gets the old
    /// content, or `None` if the file does not exist. If `generate` returns `None`, the file is not
    /// changed. If the file is not writable, stores the error in `write_errors`. Fails if the old
    /// file is larger than `max_bytes`.
    fn edit_file(
        &mut self,
        path: &str,
        max_bytes: usize,
        generate: impl FnOnce(Option<&[u8]>) -> Result<Option<Vec<u8>>, ApplyError>,
    ) -> Result<(), ApplyError> {
        use container::Error::{NotWritable, ReadOnly};
        let file = match self.root.open_writable_file(Path::new(path)) {
            Err(error @ NotWritable { .. }) => {
                self.write_errors.push(error);
                return Ok(());
            }
            file => file?,
        };
        let Some(bytes) = generate(file.read(max_bytes)?.as_deref())? else {
            return Ok(());
        };
        match file.replace(&bytes, FILE_MODE) {
            Err(error @ (NotWritable { .. } | ReadOnly { .. })) => self.write_errors.push(error),
            result => result?,
        }
        Ok(())
    }

    fn describe_write_errors(&self, search: &LibrarySearch<'_>) -> Option<String> {
        let reasons: Vec<String> = self.write_errors.iter().map(ToString::to_string).collect();
        let directories = as_paths(&search.directories).chain(search.directory_32bit);
        let directories: Vec<_> = directories.map(|path| path.to_string_lossy()).collect();
        (!reasons.is_empty()).then(|| {
            format!(
                "the dynamic loader is not fully configured: {}; for programs that do not find \
                 the libraries, set LD_LIBRARY_PATH={} in the container",
                reasons.join("; "),
                directories.join(":")
            )
        })
    }
}

//! Configures the container's dynamic loaders to find the injected libraries, without
//! executing a program of the container.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use device_class::discover::ImageLibraries;
use device_class::ld_cache::{Abi, LdCache, MAX_SIZE, NewEntry};
use nix::sys::stat::Mode;

use super::{ApplyError, image_libraries};
use crate::container::{self, ContainerRoot};
use crate::loader::{LibraryDir, LibraryDirError, Loader, find_loaders, glibc, musl};

/// The paths of the dynamic loaders for the architecture of this program. Programs contain
/// these paths, by the convention of the psABI or of musl.
const INTERPRETERS: [&str; 2] = if cfg!(target_arch = "aarch64") {
    ["/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"]
} else {
    ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"]
};

/// The path of the dynamic loader for 32-bit programs.
const INTERPRETER_32BIT: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("/lib/ld-linux.so.2")
} else {
    None
};

const CACHE: &str = "/etc/ld.so.cache";

/// The size limit of a loader's configuration file in bytes.
const MAX_CONF: usize = 1 << 20;

const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);

/// The directories and libraries that the loaders must find. A library is a name, and the path
/// to which it leads.
pub(crate) struct LibrarySearch<'p> {
    pub(super) directories: Cow<'p, [PathBuf]>,
    pub(super) libraries: Cow<'p, [(String, PathBuf)]>,
    pub(super) image_libraries: &'p [ImageLibraries],
    /// The directories of the container's `LD_LIBRARY_PATH`.
    pub(crate) library_path: &'p [PathBuf],
    pub(crate) directory_32bit: Option<&'p Path>,
    pub(super) libraries_32bit: &'p [(String, PathBuf)],
}

/// The configuration files of a container's loaders, and the errors of those that could not be
/// changed.
struct LoaderFiles<'r> {
    root: &'r ContainerRoot,
    unchanged: Vec<container::Error>,
}

/// Configures every dynamic loader that the container has. A container without a loader has
/// only programs that load no library.
///
/// A file that cannot be written is left unchanged, with a note, because programs can still
/// find the libraries by `LD_LIBRARY_PATH`.
///
/// Returns the directories of the image whose libraries are newer than those of the host.
pub(super) fn configure(
    root: &ContainerRoot,
    mut search: LibrarySearch<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<PathBuf>, ApplyError> {
    let mut newer = Vec::new();
    for image in image_libraries::find_newer_libraries(root, search.image_libraries, warnings) {
        newer.push(image.directory.clone());
        search.directories.to_mut().insert(0, image.directory);
        let libraries = search.libraries.to_mut();
        libraries.splice(0..0, image.libraries);
    }
    let search = &search;
    let mut files = LoaderFiles {
        root,
        unchanged: Vec::new(),
    };
    let native = directories(paths(&search.directories))?;
    for loader in find_loaders(interpreters(root, search)?) {
        match loader {
            Loader::Glibc => {
                // ldconfig distinguishes 32-bit and 64-bit libraries by their headers.
                let all = [native.as_slice(), &directories(search.directory_32bit)?];
                configure_glibc(&mut files, &all.concat())?;
                extend_cache(&mut files, search, warnings)?;
            }
            Loader::Musl { arch } => {
                let file = musl::path_file(&arch);
                files.edit(&file, MAX_CONF, |text| {
                    Ok(musl::update_path_file(text, &native))
                })?;
            }
        }
    }
    warnings.extend(files.note(search));
    Ok(newer)
}

/// Returns the file names of the dynamic loaders that the container has.
fn interpreters(
    root: &ContainerRoot,
    search: &LibrarySearch<'_>,
) -> Result<Vec<&'static str>, ApplyError> {
    let interpreter_32bit = search.directory_32bit.and(INTERPRETER_32BIT);
    let mut names = Vec::new();
    for path in INTERPRETERS.iter().copied().chain(interpreter_32bit) {
        if root.resolve(Path::new(path))?.is_some() {
            names.extend(path.rsplit('/').next());
        }
    }
    Ok(names)
}

fn paths(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    paths.iter().map(PathBuf::as_path)
}

fn directories<'p>(
    paths: impl IntoIterator<Item = &'p Path>,
) -> Result<Vec<LibraryDir>, LibraryDirError> {
    paths.into_iter().map(LibraryDir::new).collect()
}

/// Writes the configuration that a later `ldconfig` in the container uses.
fn configure_glibc(
    files: &mut LoaderFiles<'_>,
    directories: &[LibraryDir],
) -> Result<(), ApplyError> {
    let drop_in = glibc::generate_drop_in(directories);
    files.edit(glibc::DROP_IN, MAX_CONF, |text| {
        Ok((text != Some(&drop_in)).then_some(drop_in))
    })?;
    files.edit(glibc::CONF, MAX_CONF, |text| Ok(glibc::update_conf(text)))
}

/// Adds the libraries to the cache, which programs use until `ldconfig` generates it again.
fn extend_cache(
    files: &mut LoaderFiles<'_>,
    search: &LibrarySearch<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), ApplyError> {
    files.edit(CACHE, MAX_SIZE, |bytes| {
        let existing = match bytes.map(LdCache::parse) {
            None => None,
            Some(Ok(cache)) => Some(cache),
            Some(Err(error)) => {
                warnings.push(format!(
                    "the image's {CACHE} is invalid and is created again: {error}"
                ));
                None
            }
        };
        let mut merged =
            LdCache::merge(existing.as_ref(), &entries(&search.libraries), Abi::NATIVE);
        if let (Some(abi), false) = (Abi::BITS_32, search.libraries_32bit.is_empty()) {
            merged = LdCache::merge(Some(&merged), &entries(search.libraries_32bit), abi);
        }
        let merged = merged.to_bytes()?;
        Ok((bytes != Some(&merged)).then_some(merged))
    })
}

fn entries(libraries: &[(String, PathBuf)]) -> Vec<NewEntry> {
    let entries = libraries.iter();
    entries
        .filter_map(|(name, path)| NewEntry::new(name, path).ok())
        .collect()
}

impl LoaderFiles<'_> {
    /// Replaces the content of `path` by the result of `change`, unless the result is `None`.
    /// The file must not be larger than `cap` bytes.
    fn edit(
        &mut self,
        path: &str,
        cap: usize,
        change: impl FnOnce(Option<&[u8]>) -> Result<Option<Vec<u8>>, ApplyError>,
    ) -> Result<(), ApplyError> {
        use container::Error::{NotWritable, ReadOnly};
        let file = match self.root.file(Path::new(path)) {
            Err(error @ NotWritable { .. }) => {
                self.unchanged.push(error);
                return Ok(());
            }
            file => file?,
        };
        let Some(bytes) = change(file.read(cap)?.as_deref())? else {
            return Ok(());
        };
        match file.replace(&bytes, FILE_MODE) {
            Err(error @ (NotWritable { .. } | ReadOnly { .. })) => self.unchanged.push(error),
            replaced => replaced?,
        }
        Ok(())
    }

    fn note(&self, search: &LibrarySearch<'_>) -> Option<String> {
        let reasons: Vec<String> = self.unchanged.iter().map(ToString::to_string).collect();
        let directories = paths(&search.directories).chain(search.directory_32bit);
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

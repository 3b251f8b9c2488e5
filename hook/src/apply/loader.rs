//! Teaching the container's dynamic loaders where the libraries are. Nothing
//! of the container is run for it.

use std::path::{Path, PathBuf};

use device_class::ld_cache::{Abi, LdCache, MAX_SIZE, NewEntry};
use nix::sys::stat::Mode;

use super::ApplyError;
use crate::container::{ContainerRoot, Identity};
use crate::loader::{LibraryDir, LibraryDirError, Loader, glibc, loaders, musl};

/// Where the loaders of this program's architecture are in an image: these
/// paths are written into programs (by the psABI's and musl's conventions).
const INTERPRETERS: [&str; 2] = if cfg!(target_arch = "aarch64") {
    ["/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"]
} else {
    ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"]
};

/// The loader of 32-bit programs beside it.
const INTERPRETER_32BIT: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("/lib/ld-linux.so.2")
} else {
    None
};

const CACHE: &str = "/etc/ld.so.cache";

/// Where all that loaders read is.
pub(super) const LOADERS_DIRECTORY: &str = "/etc";

/// The largest configuration of a loader that is read, in bytes.
const MAX_CONF: usize = 1 << 20;

const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);
const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o755);

/// What the loaders are to find: directories, and names with where each leads.
pub(super) struct Searched {
    pub(super) directories: Vec<PathBuf>,
    pub(super) libraries: Vec<(String, PathBuf)>,
    pub(super) directory_32bit: Option<PathBuf>,
    pub(super) libraries_32bit: Vec<(String, PathBuf)>,
    /// The host's own [`LOADERS_DIRECTORY`], which is never written to: a
    /// container may have it as a volume.
    pub(super) hosts_own: Option<Identity>,
}

/// Makes every loader that the container has find the libraries. A container
/// without one has only programs that load nothing.
pub(super) fn configure(
    root: &ContainerRoot,
    searched: &Searched,
    notes: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let found = root.resolve(Path::new(LOADERS_DIRECTORY))?;
    if found.is_some_and(|found| Some(found.identity()) == searched.hosts_own) {
        notes.push(format!(
            "the container has the host's own {LOADERS_DIRECTORY}, which is left alone: its \
             loaders are not told of the libraries; set LD_LIBRARY_PATH to their directory"
        ));
        return Ok(());
    }
    let native = directories(&searched.directories)?;
    let interpreter_32bit = searched.directory_32bit.as_ref().and(INTERPRETER_32BIT);
    let mut names = Vec::new();
    for path in INTERPRETERS.iter().copied().chain(interpreter_32bit) {
        let path = Path::new(path);
        if root.resolve(path)?.is_some() {
            names.extend(path.file_name());
        }
    }
    for loader in loaders(names) {
        match loader {
            Loader::Glibc => {
                // ldconfig tells the two sorts of libraries apart by themselves.
                let all = [native.as_slice(), &directories(&searched.directory_32bit)?];
                configure_glibc(root, &all.concat())?;
                extend_cache(root, searched, notes)?;
            }
            Loader::Musl { arch } => {
                let file = musl::path_file(&arch);
                let text = root.read_file(Path::new(&file), MAX_CONF)?;
                write(root, &file, musl::path(text.as_deref(), &native))?;
            }
        }
    }
    Ok(())
}

fn directories<'p>(
    paths: impl IntoIterator<Item = &'p PathBuf>,
) -> Result<Vec<LibraryDir>, LibraryDirError> {
    paths.into_iter().map(LibraryDir::new).collect()
}

/// What a later `ldconfig` in the container goes by.
fn configure_glibc(root: &ContainerRoot, directories: &[LibraryDir]) -> Result<(), ApplyError> {
    let drop_in = glibc::drop_in(directories);
    let there = root.read_file(Path::new(glibc::DROP_IN), MAX_CONF)?;
    let changed = there.as_deref() != Some(&drop_in);
    write(root, glibc::DROP_IN, changed.then_some(drop_in))?;
    let conf = root.read_file(Path::new(glibc::CONF), MAX_CONF)?;
    write(root, glibc::CONF, glibc::conf(conf.as_deref()))
}

/// What programs go by until then.
fn extend_cache(
    root: &ContainerRoot,
    searched: &Searched,
    notes: &mut Vec<String>,
) -> Result<(), ApplyError> {
    let bytes = root.read_file(Path::new(CACHE), MAX_SIZE)?;
    let existing = match bytes.as_deref().map(LdCache::parse) {
        None => None,
        Some(Ok(cache)) => Some(cache),
        Some(Err(error)) => {
            notes.push(format!(
                "the image's {CACHE} can't be read and is made anew: {error}"
            ));
            None
        }
    };
    let mut merged = LdCache::merge(
        existing.as_ref(),
        &entries(&searched.libraries),
        Abi::NATIVE,
    );
    if let (Some(abi), false) = (Abi::BITS_32, searched.libraries_32bit.is_empty()) {
        merged = LdCache::merge(Some(&merged), &entries(&searched.libraries_32bit), abi);
    }
    let merged = merged.to_bytes()?;
    let changed = bytes.as_deref() != Some(&merged);
    write(root, CACHE, changed.then_some(merged))
}

fn entries(libraries: &[(String, PathBuf)]) -> Vec<NewEntry> {
    let entries = libraries.iter();
    entries
        .filter_map(|(name, path)| NewEntry::new(name, path).ok())
        .collect()
}

fn write(root: &ContainerRoot, file: &str, bytes: Option<Vec<u8>>) -> Result<(), ApplyError> {
    let Some(bytes) = bytes else {
        return Ok(());
    };
    let file = Path::new(file);
    if let Some(directory) = file.parent() {
        root.create_dir_all(directory, DIRECTORY_MODE)?;
    }
    Ok(root.replace_file(file, &bytes, FILE_MODE)?)
}

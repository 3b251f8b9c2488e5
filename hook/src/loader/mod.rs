//! Recognizes the dynamic loaders of a container, and generates their configuration files.
//!
//! The hook mounts libraries in a directory of its own, and adds them to glibc's cache (see
//! `device_class::ld_cache`). If a program of the container runs `ldconfig`, this tool writes the
//! cache again from the directories in its configuration file. So the configuration file must list
//! the hook's directory. musl's loader has no cache, only a configuration file.
//!
//! All functions of this module are pure: they take names and bytes, and return bytes.
//!
//! Both configuration files list **the hook's directory first**. It contains the user-space
//! libraries of the host's driver, as the class file lists them. Their version must match the
//! kernel module. A copy of the same library in the image may have another version, and must not be
//! found first.

mod directory;
pub(crate) mod glibc;
pub(crate) mod musl;
#[cfg(test)]
mod tests;

use device_class::collect_by_insertion;
use std::collections::BTreeSet;
use std::ffi::OsStr;

pub(crate) use directory::{LibraryDir, LibraryDirError};

/// A kind of dynamic loader. It determines which configuration files the hook changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Loader {
    /// The loader of glibc. It reads a cache, which `ldconfig` generates from `ld.so.conf`.
    Glibc,
    /// The loader of musl. It reads `/etc/ld-musl-ARCH.path`.
    Musl {
        /// The name of the architecture in musl, such as `x86_64`. It consists of letters, digits,
        /// `-` and `_`.
        arch: String,
    },
}

impl Loader {
    /// Recognizes a loader by its file name, such as `ld-linux-x86-64.so.2` or
    /// `ld-musl-x86_64.so.1`. Returns `None` for any other file name.
    fn from_file_name(name: &OsStr) -> Option<Self> {
        let (stem, version) = name.to_str()?.rsplit_once(".so.")?;
        if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        if let Some(arch) = stem.strip_prefix("ld-musl-") {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            let is_valid = !arch.is_empty() && arch.bytes().all(is_name);
            return is_valid.then(|| Self::Musl { arch: arch.into() });
        }
        // Examples of glibc's loader: `ld-linux.so.2` on i386, `ld-linux-x86-64.so.2`,
        // `ld-linux-aarch64.so.1`, `ld64.so.1` and `ld64.so.2` on 64-bit s390 and POWER.
        let is_glibc = stem == "ld64" || stem == "ld-linux" || stem.starts_with("ld-linux-");
        is_glibc.then_some(Self::Glibc)
    }
}

/// Returns the dynamic loaders whose file names are in `names`. Other names are ignored. Returns
/// each loader once, and glibc's first. A container may have loaders of both kinds, and loaders of
/// musl for several architectures.
///
/// gcompat runs programs for glibc on musl systems, and its loader has the same file name as
/// glibc's. It is treated as glibc's loader, although it ignores the configuration of glibc.
pub(crate) fn find_loaders(names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Vec<Loader> {
    let names = names.into_iter();
    let loaders: BTreeSet<Loader> =
        collect_by_insertion(names.filter_map(|name| Loader::from_file_name(name.as_ref())));
    loaders.into_iter().collect()
}

//! The dynamic loaders of a container, and the texts of their configuration.
//!
//! The hook puts its libraries into a directory of its own and into glibc's
//! cache (see `device_class::ld_cache`). That is enough until `ldconfig` is run
//! in the container, which regenerates the cache from the directories that its
//! configuration names. musl has no cache, only its configuration.
//!
//! Everything here is pure: names and bytes in, bytes out.
//!
//! In both, **our directory comes first**. It contains only what a device class
//! lists: the user space part of the host's driver, whose version must match
//! the kernel module. An image's copy of the same soname would not.

mod directory;
pub(crate) mod glibc;
pub(crate) mod musl;
#[cfg(test)]
mod tests;

use device_class::inserted;
use std::collections::BTreeSet;
use std::ffi::OsStr;

pub(crate) use directory::{LibraryDir, LibraryDirError};

/// A dynamic loader of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Loader {
    /// glibc's: cache and `ld.so.conf`.
    Glibc,
    /// musl's: one `ld-musl-ARCH.path` for each architecture.
    Musl {
        /// musl's name of the architecture, such as `x86_64`: letters, digits, `-`, `_`.
        arch: String,
    },
}

impl Loader {
    /// The loader with this file name; `None` for any other file.
    fn from_file_name(name: &OsStr) -> Option<Self> {
        let (stem, version) = name.to_str()?.rsplit_once(".so.")?;
        if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        if let Some(arch) = stem.strip_prefix("ld-musl-") {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            let valid = !arch.is_empty() && arch.bytes().all(is_name);
            return valid.then(|| Self::Musl { arch: arch.into() });
        }
        // `ld-linux.so.2` (i386), `ld-linux-x86-64.so.2`, `ld-linux-aarch64.so.1` and so on;
        // `ld64.so.1` and `ld64.so.2` on 64-bit s390 and POWER.
        let is_glibc = stem == "ld64" || stem == "ld-linux" || stem.starts_with("ld-linux-");
        is_glibc.then_some(Self::Glibc)
    }
}

/// The loaders among the names of files in `/lib`, `/lib64` and `/usr/lib*`, each once, glibc's
/// first. A container may have both, and musl for more than one architecture.
///
/// A replacement of glibc's loader on a musl system (gcompat) has the same file
/// name and counts as glibc's; it ignores glibc's files.
pub(crate) fn loaders(names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Vec<Loader> {
    let names = names.into_iter();
    let found = names.filter_map(|name| Loader::from_file_name(name.as_ref()));
    let found: BTreeSet<Loader> = inserted(found);
    found.into_iter().collect()
}

//! The dynamic loaders of a container, and the texts of their configuration files.
//!
//! The hook puts its libraries into a directory of its own and into glibc's cache (see
//! `device_class::ld_cache`). These two are sufficient until `ldconfig` runs in the
//! container, which generates the cache again from the directories in its configuration. musl
//! has no cache, only a configuration.
//!
//! All functions here are pure: they take names and bytes, and return bytes.
//!
//! In both configurations, **the injected directory comes first**. It contains only the
//! libraries that a device class lists: the part of the host's driver that runs in user space,
//! whose version must match the kernel module. The copy of the same library in an image may
//! have another version.

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
    /// The loader of glibc, with a cache and `ld.so.conf`.
    Glibc,
    /// The loader of musl, with one `ld-musl-ARCH.path` for each architecture.
    Musl {
        /// The name of the architecture in musl, such as `x86_64`: letters, digits, `-` and
        /// `_`.
        arch: String,
    },
}

impl Loader {
    /// Returns the loader with this file name, or `None` for any other file.
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
        // Examples are `ld-linux.so.2` (i386), `ld-linux-x86-64.so.2` and
        // `ld-linux-aarch64.so.1`, and `ld64.so.1` and `ld64.so.2` on 64-bit s390 and POWER.
        let is_glibc = stem == "ld64" || stem == "ld-linux" || stem.starts_with("ld-linux-");
        is_glibc.then_some(Self::Glibc)
    }
}

/// Returns the loaders among the names of files in `/lib`, `/lib64` and `/usr/lib*`, each once
/// and glibc's first. A container may have loaders of both kinds, and those of musl for
/// several architectures.
///
/// A replacement of glibc's loader on a musl system (gcompat) has the same file name and
/// counts as glibc's. It ignores the configuration of glibc.
pub(crate) fn loaders(names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Vec<Loader> {
    let names = names.into_iter();
    let loaders: BTreeSet<Loader> =
        inserted(names.filter_map(|name| Loader::from_file_name(name.as_ref())));
    loaders.into_iter().collect()
}

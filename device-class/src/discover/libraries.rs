//! Finds the libraries of a class in a host's ld.so.cache, and in the directories that the class
//! names.

use crate::collect_by_insertion;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::DeviceError;
use super::driver_root::DriverRoot;
use super::found::{FoundLibrary, PathLookup};
use crate::class::{Edits, LibraryNamePatterns, NamePattern, SoName};
use crate::host::{Entry, ProgramAbi};
use crate::ownership::OwnershipError;
use crate::template::Attributes;

const LD_CACHE_PATH: &str = "/etc/ld.so.cache";

/// A search for the libraries of a class: first in ld.so.cache, and then in directories.
pub(super) struct LibrarySearch<'a> {
    /// Directories in which a library is searched if it is not in ld.so.cache.
    pub(super) directories: Vec<PathBuf>,
    /// Directories that the class names but the host does not have. Only messages use them.
    pub(super) absent_directories: Vec<PathBuf>,
    /// Patterns for library names. A name that matches one of them also gets a symbolic link in the
    /// image's own library directory. `None` means that every name gets such a link.
    pub(super) image_links: Option<&'a [NamePattern]>,
    /// Whether 32-bit libraries are also searched, because the container has the class's capability
    /// for them (`capability_32bit`).
    pub(super) includes_32bit: bool,
    pub(super) driver_root: DriverRoot<'a>,
}

impl LibrarySearch<'_> {
    pub(super) fn find_libraries(
        &self,
        edits: &Edits,
        attributes: &Attributes,
    ) -> Result<Vec<FoundLibrary>, DeviceError> {
        let version = edits.library_version.as_ref();
        let version = version
            .map(|version| version.fill(attributes))
            .transpose()?;
        let version = version.as_deref();
        let is_present = |library: &FoundLibrary| {
            library.file != PathLookup::OptionalAbsent || library.omission_reason.is_some()
        };
        let mut found_libraries = Vec::new();
        for spec in &edits.libraries {
            let soname = spec.soname.fill(attributes).map_err(DeviceError)?;
            let is_optional = edits.optional || spec.optional;
            found_libraries.push(self.find_library(
                &soname,
                &spec.links,
                version,
                ProgramAbi::Native,
                is_optional,
            )?);
            if self.includes_32bit {
                // A 32-bit library is always optional, because most libraries have no 32-bit
                // version.
                let library_32bit =
                    self.find_library(&soname, &spec.links, version, ProgramAbi::Bits32, true)?;
                found_libraries.extend(Some(library_32bit).filter(is_present));
            }
        }
        if let Some(names) = &edits.libraries_matching {
            let abis = [ProgramAbi::Native, ProgramAbi::Bits32];
            for abi in &abis[..1 + usize::from(self.includes_32bit)] {
                for soname in self.list_matching_names(names, *abi)? {
                    let mut library = self.find_library(&soname, &[], version, *abi, true)?;
                    // No message is needed for a library that cannot be used. The patterns also
                    // match libraries of other software, such as the vendor's container toolkit.
                    library.omission_reason = None;
                    found_libraries.extend(Some(library).filter(is_present));
                }
            }
        }
        Ok(found_libraries)
    }

    /// Returns the sonames of the host's libraries that match the patterns. Searches ld.so.cache
    /// and, for libraries of native programs, also the directories of this search.
    fn list_matching_names(
        &self,
        names: &LibraryNamePatterns,
        abi: ProgramAbi,
    ) -> Result<Vec<SoName>, DeviceError> {
        let cached_names = self.driver_root.view.library_names(abi);
        let cached_names = cached_names.map_err(|error| DeviceError::io(LD_CACHE_PATH, &error))?;
        let mut candidate_names: BTreeSet<String> = collect_by_insertion(cached_names);
        if abi == ProgramAbi::Native {
            for directory in &self.directories {
                let is_match = |name: &str| names.matches_name(name);
                let listed_names = self.driver_root.view.list_matching(directory, &is_match);
                candidate_names
                    .extend(listed_names.map_err(|error| DeviceError::io(directory, &error))?);
            }
        }
        let matching_names = candidate_names
            .into_iter()
            .filter(|name| names.matches_name(name));
        Ok(matching_names
            .filter_map(|name| SoName::try_from(name).ok())
            .collect())
    }

    /// Returns the path of a library for a message. Symbolic links are resolved, so that the file
    /// name ends with the version. If the look-up fails, returns `path`.
    fn resolve_for_message(&self, path: &Path) -> PathBuf {
        let host_file = self.driver_root.view.find_trusted_file(path).ok().flatten();
        host_file.map_or_else(
            || path.to_owned(),
            |host_file| self.driver_root.to_host_path(host_file.path),
        )
    }

    /// Returns whether the host has a file at the path. Returns true if the look-up fails, because
    /// the file may exist.
    fn exists(&self, path: &Path) -> bool {
        !matches!(self.driver_root.view.entry(path), Ok(None))
    }

    /// Describes a library whose version differs from that of the loaded driver. If the first
    /// numbers of both versions have the same length, an update has probably replaced the library
    /// while the old driver stayed loaded. Then the message advises a reboot.
    fn describe_other_version(&self, soname: &str, path: &Path, version: &str) -> String {
        let path = self.resolve_for_message(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file_version = name.rsplit_once(".so.").map(|(_, version)| version);
        let count_digits = |version: &str| version.find(|c: char| !c.is_ascii_digit());
        let advice = if file_version.is_some_and(|v| count_digits(v) == count_digits(version)) {
            "after an update of the driver reboot the host, otherwise install"
        } else {
            "install"
        };
        format!(
            "{soname} is on the host as {}, which is not of version {version}, that of the driver \
             that is loaded; {advice} the libraries of version {version}",
            path.display()
        )
    }

    /// Describes a library that is in no searched directory. Class files list the directories of
    /// many distributions, so the message names at most three of those that the host lacks. The
    /// first ones are those that the administrator has added.
    fn describe_absence(&self, soname: &str) -> String {
        const MAX_LISTED_ABSENT_PATHS: usize = 3;
        let to_text = |path: &PathBuf| {
            self.driver_root
                .to_host_path(path.clone())
                .display()
                .to_string()
        };
        let searched_paths = self.directories.iter().map(to_text);
        let absent_paths = self.absent_directories.iter().map(to_text);
        let absent_paths = absent_paths.map(|path| format!("{path} (does not exist)"));
        let absent_paths = absent_paths.take(MAX_LISTED_ABSENT_PATHS);
        let mut directories: Vec<String> = searched_paths.chain(absent_paths).collect();
        let absent_count = self.absent_directories.len();
        if absent_count > MAX_LISTED_ABSENT_PATHS {
            let count = absent_count - MAX_LISTED_ABSENT_PATHS;
            directories.push(format!("{count} other directories that do not exist"));
        }
        let mut text = format!(
            "{soname} is not in the host's ld.so.cache; install the driver's libraries and run \
             ldconfig, or name their directory in `library_directories`"
        );
        if !directories.is_empty() {
            text.push_str(&format!(" (not in {})", directories.join(", ")));
        }
        if let Some(path) = self.find_versioned_name(soname) {
            text.push_str(&format!("; {} is there", to_text(&path)));
        }
        text
    }

    /// Returns a library in the searched directories whose name begins with `soname` and has a
    /// version after it, such as `libexample.so.1` for `libexample.so`.
    fn find_versioned_name(&self, soname: &str) -> Option<PathBuf> {
        self.directories.iter().find_map(|directory| {
            let names = self.driver_root.view.list(directory).ok()?;
            let mut versioned_names = names.iter().filter(|name| {
                let version = name.strip_prefix(soname);
                version.is_some_and(|version| version.starts_with('.'))
            });
            Some(directory.join(versioned_names.next()?))
        })
    }

    fn find_library(
        &self,
        soname: &SoName,
        links: &[SoName],
        version: Option<&str>,
        abi: ProgramAbi,
        is_optional: bool,
    ) -> Result<FoundLibrary, DeviceError> {
        let driver_root = self.driver_root;
        let soname = soname.as_str().to_owned();
        let paths = driver_root.view.libraries(&soname, abi);
        let mut paths = paths.map_err(|error| DeviceError::io(LD_CACHE_PATH, &error))?;
        let mut lookup = find_version(&paths, &soname, version, driver_root)?;
        // The cache may have only a library of another package, such as a developer kit.
        if !matches!(lookup, Ok(Some(_))) && abi == ProgramAbi::Native {
            let other_paths = self.list_paths_in_directories(&soname)?;
            let other_lookup = find_version(&other_paths, &soname, version, driver_root)?;
            if paths.is_empty() || matches!(other_lookup, Ok(Some(_))) {
                (paths, lookup) = (other_paths, other_lookup);
            }
        }
        let mut omission_reason = None;
        let file = match lookup {
            Ok(Some(file)) => PathLookup::Found(file),
            result => {
                let present_path = paths.iter().find(|path| self.exists(path));
                let is_on_host = present_path.is_some();
                let reason = match (result, present_path.or(paths.first()), version) {
                    (Err(error), _, _) => format!("{soname} cannot be trusted: {error}"),
                    (_, None, _) => self.describe_absence(&soname),
                    (_, Some(path), Some(version)) if is_on_host => {
                        self.describe_other_version(&soname, path, version)
                    }
                    (_, Some(path), _) => format!(
                        "{soname} is in the host's ld.so.cache as {}, which cannot be used; run \
                         ldconfig",
                        path.display()
                    ),
                };
                if is_optional {
                    omission_reason = is_on_host.then_some(reason);
                    PathLookup::OptionalAbsent
                } else {
                    PathLookup::Unusable(reason)
                }
            }
        };
        let mut links: BTreeSet<String> =
            collect_by_insertion(links.iter().map(|name| name.as_str().to_owned()));
        links.insert(soname.clone());
        let mut image_links = links.clone();
        image_links.retain(|link| abi == ProgramAbi::Native && self.has_image_link(link));
        if let PathLookup::Found(file) = &file {
            let file_name = file
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            links.retain(|link| Some(link) != file_name.as_ref());
        }
        Ok(FoundLibrary {
            soname,
            abi,
            link_names: links,
            image_link_names: image_links,
            file,
            omission_reason,
        })
    }

    /// Returns the paths of the library in the directories that are searched beside the cache.
    fn list_paths_in_directories(&self, soname: &str) -> Result<Vec<PathBuf>, DeviceError> {
        let mut paths = Vec::new();
        for directory in &self.directories {
            let path = directory.join(soname);
            match self.driver_root.view.entry(&path) {
                Ok(Some(Entry::File)) => paths.push(path),
                Ok(_) => {}
                Err(error) => return Err(DeviceError::io(&path, &error)),
            }
        }
        Ok(paths)
    }

    fn has_image_link(&self, name: &str) -> bool {
        let patterns = self.image_links;
        patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(name)))
    }
}

/// Returns the first path whose file name ends with this version, with symbolic links resolved. If
/// no file has a version in its name, returns the first file with the name `soname`, because some
/// packages install a library without a version. Beside a file of another version, such a file is
/// often only a stub for linkers. The inner error means that users other than root can replace a
/// file, and that no other file can be used.
///
/// # Errors
/// The outer error means that the look-up of a path failed. Then the library may exist, so it must
/// not be treated as missing. Otherwise an optional library would be left out without a message.
fn find_version(
    paths: &[PathBuf],
    soname: &str,
    version: Option<&str>,
    driver_root: DriverRoot<'_>,
) -> Result<Result<Option<PathBuf>, OwnershipError>, DeviceError> {
    let mut ownership_error = None;
    let mut unversioned_file = None;
    let mut has_other_version = false;
    for path in paths {
        let file = match driver_root.view.find_trusted_file(path) {
            Ok(Some(host_file)) => driver_root.to_host_path(host_file.path),
            Ok(None) => continue,
            Err(OwnershipError::Open { error, .. }) if is_symlink_loop(&error) => continue,
            Err(OwnershipError::Open { error, .. }) => {
                return Err(DeviceError::io(path, &error));
            }
            Err(error) => {
                ownership_error.get_or_insert(error);
                has_other_version = true;
                continue;
            }
        };
        let name = file.to_string_lossy();
        let has_version = |version| {
            name.strip_suffix(version)
                .is_some_and(|name| name.ends_with('.'))
        };
        if version.is_none_or(has_version) {
            return Ok(Ok(Some(file)));
        }
        if file.file_name().is_some_and(|name| name == soname) {
            unversioned_file.get_or_insert(file);
        } else {
            has_other_version = true;
        }
    }
    if unversioned_file.is_some() && !has_other_version {
        return Ok(Ok(unversioned_file));
    }
    Ok(ownership_error.map_or(Ok(None), Err))
}

/// Returns whether the error is a loop of symbolic links (`ELOOP`). A path with such a loop counts
/// as missing.
fn is_symlink_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::Error::ELOOP as i32)
}

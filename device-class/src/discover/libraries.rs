//! Finds the libraries of a class in the ld.so.cache of a host, and in directories that the
//! class names.

use crate::inserted;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::DeviceError;
use super::driver_root::DriverRoot;
use super::found::{FoundLibrary, Presence};
use crate::class::{Edits, LibraryNames, NamePattern, SoName};
use crate::host::{Entry, Programs};
use crate::ownership::OwnershipError;
use crate::template::Attributes;

const LD_CACHE: &str = "/etc/ld.so.cache";

/// The places where the libraries of a class are searched.
pub(super) struct LibrarySearch<'a> {
    /// Directories that are searched for a library that is not in ld.so.cache.
    pub(super) directories: Vec<PathBuf>,
    /// Directories in which a library may be, and which the host lacks.
    pub(super) absent_directories: Vec<PathBuf>,
    /// The names that get a link in the image's own library directory; `None` for all.
    pub(super) image_links: Option<&'a [NamePattern]>,
    /// Whether libraries for 32-bit programs are searched in addition.
    pub(super) for_32bit: bool,
    pub(super) driver: DriverRoot<'a>,
}

impl LibrarySearch<'_> {
    pub(super) fn libraries(
        &self,
        edits: &Edits,
        attributes: &Attributes,
    ) -> Result<Vec<FoundLibrary>, DeviceError> {
        let version = edits.library_version.as_ref();
        let version = version
            .map(|version| version.fill(attributes))
            .transpose()?;
        let version = version.as_deref();
        let is_known = |library: &FoundLibrary| library.file != Presence::Optional;
        let mut found = Vec::new();
        for spec in &edits.libraries {
            let soname = spec.soname.fill(attributes).map_err(DeviceError)?;
            let optional = edits.optional || spec.optional;
            found.push(self.find(&soname, &spec.links, version, Programs::Native, optional)?);
            if self.for_32bit {
                // The 32-bit library is always optional, because most libraries do not exist
                // for 32-bit programs.
                let other = self.find(&soname, &spec.links, version, Programs::Bits32, true)?;
                found.extend(Some(other).filter(is_known));
            }
        }
        if let Some(names) = &edits.libraries_matching {
            let programs = [Programs::Native, Programs::Bits32];
            for programs in &programs[..1 + usize::from(self.for_32bit)] {
                for soname in self.matching(names, *programs)? {
                    let library = self.find(&soname, &[], version, *programs, true)?;
                    found.extend(Some(library).filter(is_known));
                }
            }
        }
        Ok(found)
    }

    /// Returns the sonames of the host's libraries that match the patterns.
    fn matching(
        &self,
        names: &LibraryNames,
        programs: Programs,
    ) -> Result<Vec<SoName>, DeviceError> {
        let cached = self.driver.view.library_names(programs);
        let cached = cached.map_err(|error| DeviceError::io(LD_CACHE, &error))?;
        let mut all: BTreeSet<String> = inserted(cached);
        if programs == Programs::Native {
            for directory in &self.directories {
                let is_match = |name: &str| names.matches_name(name);
                let listed = self.driver.view.list_matching(directory, &is_match);
                all.extend(listed.map_err(|error| DeviceError::io(directory, &error))?);
            }
        }
        let matching = all.into_iter().filter(|name| names.matches_name(name));
        Ok(matching
            .filter_map(|name| SoName::try_from(name).ok())
            .collect())
    }

    /// Returns the path of a library without links, which ends with the version. If it cannot be
    /// looked up, the path itself is returned.
    fn shown(&self, path: &Path) -> PathBuf {
        let place = self.driver.view.place(path).ok().flatten();
        place.map_or_else(|| path.to_owned(), |place| self.driver.on_host(place.path))
    }

    fn describe_absence(&self, soname: &str) -> String {
        let to_text = |path: &PathBuf| self.driver.on_host(path.clone()).display().to_string();
        let searched = self.directories.iter().map(to_text);
        let absent = self.absent_directories.iter().map(to_text);
        let absent = absent.map(|path| format!("{path} (does not exist)"));
        let places: Vec<String> = searched.chain(absent).collect();
        if places.is_empty() {
            return format!(
                "{soname} is not in the host's ld.so.cache; install the driver's libraries and run \
                 ldconfig, or name their directory in `library_directories`"
            );
        }
        format!(
            "{soname} is not in the host's ld.so.cache, and not in {}; install the driver's \
             libraries and run ldconfig, or correct `library_directories`",
            places.join(", ")
        )
    }

    fn find(
        &self,
        soname: &SoName,
        links: &[SoName],
        version: Option<&str>,
        programs: Programs,
        optional: bool,
    ) -> Result<FoundLibrary, DeviceError> {
        let driver = self.driver;
        let soname = soname.as_str().to_owned();
        let cached = driver.view.libraries(&soname, programs);
        let mut cached = cached.map_err(|error| DeviceError::io(LD_CACHE, &error))?;
        if cached.is_empty() && programs == Programs::Native {
            for directory in &self.directories {
                let path = directory.join(&soname);
                match driver.view.entry(&path) {
                    Ok(Some(Entry::File)) => cached.push(path),
                    Ok(_) => {}
                    Err(error) => return Err(DeviceError::io(&path, &error)),
                }
            }
        }
        let file = match (
            find_version(&cached, version, driver)?,
            cached.first(),
            version,
        ) {
            (Ok(Some(file)), _, _) => Presence::Found(file),
            _ if optional => Presence::Optional,
            (Err(error), _, _) => {
                Presence::Unusable(format!("{soname} cannot be trusted: {error}"))
            }
            (Ok(None), None, _) => Presence::Unusable(self.describe_absence(&soname)),
            (Ok(None), Some(path), None) => Presence::Unusable(format!(
                "{soname} is in the host's ld.so.cache as {}, which cannot be used; run ldconfig",
                path.display()
            )),
            (Ok(None), Some(path), Some(version)) => Presence::Unusable(format!(
                "{soname} is on the host as {}, which is not of version {version}, that of the \
                 driver that is loaded; after an update of the driver reboot the host, otherwise \
                 install the libraries of version {version}",
                self.shown(path).display()
            )),
        };
        let mut links: BTreeSet<String> =
            inserted(links.iter().map(|name| name.as_str().to_owned()));
        links.insert(soname.clone());
        let mut image_links = links.clone();
        image_links.retain(|link| programs == Programs::Native && self.has_image_link(link));
        if let Presence::Found(file) = &file {
            let own_name = file
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            links.retain(|link| Some(link) != own_name.as_ref());
        }
        Ok(FoundLibrary {
            soname,
            programs,
            links,
            image_links,
            file,
        })
    }

    fn has_image_link(&self, name: &str) -> bool {
        let patterns = self.image_links;
        patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.fits(name)))
    }
}

/// Returns the first of the paths at which a file of the version exists, without links in the path.
/// The inner error means that the only such files cannot be trusted, because users other than root
/// can replace them.
///
/// # Errors
/// The outer error means that the look-up of a path failed. The library may exist there, so it must
/// not be treated as absent: an optional library would be left out without a message.
fn find_version(
    cached: &[PathBuf],
    version: Option<&str>,
    driver: DriverRoot<'_>,
) -> Result<Result<Option<PathBuf>, OwnershipError>, DeviceError> {
    let mut untrusted = None;
    for path in cached {
        let file = match driver.view.place(path) {
            Ok(Some(place)) => driver.on_host(place.path),
            Ok(None) => continue,
            Err(OwnershipError::Open { error, .. }) if is_loop(&error) => continue,
            Err(OwnershipError::Open { error, .. }) => {
                return Err(DeviceError::io(path, &error));
            }
            Err(error) => {
                untrusted.get_or_insert(error);
                continue;
            }
        };
        let name = file.to_string_lossy();
        let fits = |version| {
            name.strip_suffix(version)
                .is_some_and(|name| name.ends_with('.'))
        };
        if version.is_none_or(fits) {
            return Ok(Ok(Some(file)));
        }
    }
    Ok(untrusted.map_or(Ok(None), Err))
}

/// Returns whether the error is a loop of symbolic links (`ELOOP`). Such a path counts as absent.
fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::Error::ELOOP as i32)
}

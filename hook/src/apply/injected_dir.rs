//! Fills the hook's own directory in a container: a read-only tmpfs for libraries, and for files that
//! the image does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use injection_plan::plan::{FILES, INJECTED};
use nix::sys::stat::Mode;

use super::ApplyError;
use super::tmpfs::{self, TmpfsDirectories};
use crate::container::{ContainerRoot, FileKind, Name};
use crate::mount::{Mounter, Source, TmpfsOptions};

/// The libraries and files that will be mounted in the hook's own directory.
#[derive(Default)]
pub(crate) struct InjectedDir<'p> {
    /// The libraries by directory; each directory is in [`INJECTED`].
    libraries: BTreeMap<&'p Path, Vec<Library<'p>>>,
    files: Vec<(Source, &'p Path)>,
}

/// A library, its file name, and additional names for it.
type Library<'p> = (Source, &'p OsStr, &'p BTreeSet<String>);

/// The size limit of the tmpfs in bytes. The tmpfs has only mount points and links, because the
/// contents of mounted files are in their own file systems.
const SIZE: u64 = 1 << 20;

const MODE: Mode = Mode::from_bits_truncate(0o755);

impl<'p> InjectedDir<'p> {
    /// Returns the path in the hook's directory of the file that the container finds at `path`.
    pub(crate) fn inner_path(path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").unwrap_or(path);
        Path::new(INJECTED).join(FILES).join(inside)
    }

    pub(super) fn add_library(
        &mut self,
        source: Source,
        path: &'p Path,
        links: &'p BTreeSet<String>,
    ) -> Result<(), ApplyError> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ApplyError::Path {
                path: path.into(),
                what: "a library",
            });
        };
        let libraries = self.libraries.entry(directory).or_default();
        libraries.push((source, name, links));
        Ok(())
    }

    /// Adds the file that the container finds at `path`.
    pub(super) fn add_file(&mut self, source: Source, path: &'p Path) {
        self.files.push((source, path));
    }

    /// Creates the directory and mounts all libraries and files in it. Nothing is done if
    /// everything is there already, because a hook may run twice.
    pub(super) fn attach(
        self,
        root: &ContainerRoot,
        mounter: &mut Mounter,
        label: Option<&str>,
    ) -> Result<(), ApplyError> {
        let empty = self.libraries.is_empty() && self.files.is_empty();
        if empty || self.is_complete(root)? {
            return Ok(());
        }
        let covered = root.mount_point(Path::new(INJECTED), FileKind::Directory)?;
        let options = TmpfsOptions {
            size: SIZE,
            mode: MODE,
            label,
        };
        let staged = mounter.tmpfs(covered, &options)?;
        let mut mounts = Vec::new();
        let mut directories = TmpfsDirectories::new(staged.directory());
        for (path, libraries) in self.libraries {
            let directory = directories.create(relative_path(path))?;
            for (source, name, links) in libraries {
                let target = directory.mount_point(Name::new(name)?, source.kind())?;
                for link in links {
                    directory.symlink(Name::new(link)?, Path::new(name))?;
                }
                mounts.push((source, target));
            }
        }
        for (source, path) in self.files {
            let place = InjectedDir::inner_path(path);
            let (directory, name) = directories.create_parent(relative_path(&place))?;
            let target = directory.mount_point(name, source.kind())?;
            mounts.push((source, target));
        }
        tmpfs::attach(staged, mounts, mounter)
    }

    fn is_complete(&self, root: &ContainerRoot) -> Result<bool, ApplyError> {
        let libraries = self.libraries.iter().flat_map(|(path, libraries)| {
            let libraries = libraries.iter();
            libraries.map(move |(source, name, _)| (source, path.join(name)))
        });
        let files = self
            .files
            .iter()
            .map(|(source, path)| (source, InjectedDir::inner_path(path)));
        for (source, path) in libraries.chain(files) {
            if !tmpfs::is_mounted_at(root, &path, source)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the part of the path below [`INJECTED`].
fn relative_path(path: &Path) -> &Path {
    path.strip_prefix(INJECTED).unwrap_or(path)
}

//! Fills `/usr/lib/boathook` in a container. The hook mounts a read-only tmpfs on this directory,
//! for the injected libraries and for files that the image does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use injection_plan::plan::{FILES_DIR_NAME, INJECTED_DIR};
use nix::sys::stat::Mode;

use super::ApplyError;
use super::tmpfs::{self, TmpfsDirectories};
use crate::container::{ContainerRoot, FileKind, FileName};
use crate::mount::{MountSource, Mounter, TmpfsOptions};

/// The libraries and the other files that will be mounted below `/usr/lib/boathook` in a container.
#[derive(Default)]
pub struct InjectedDir<'p> {
    /// The libraries, grouped by directory, such as `/usr/lib/boathook/lib`.
    libraries: BTreeMap<&'p Path, Vec<Library<'p>>>,
    /// The other files, such as programs, each with its usual path, such as `/usr/bin/npu-info`. At
    /// the usual path, the hook creates a symbolic link to the mounted file.
    files: Vec<(MountSource, &'p Path)>,
}

/// A library, its file name such as `libx.so.1.2`, and the names of the links to it, such as
/// `libx.so.1`.
type Library<'p> = (MountSource, &'p OsStr, &'p BTreeSet<String>);

/// The size limit of the tmpfs in bytes. The tmpfs contains only mount points and links. The
/// contents of the mounted files do not count, because they are in other file systems.
const TMPFS_SIZE_LIMIT_BYTES: u64 = 1 << 20;

const TMPFS_MODE: Mode = Mode::from_bits_truncate(0o755);

impl<'p> InjectedDir<'p> {
    /// Returns the path at which an injected file is mounted, below `/usr/lib/boathook/files`. For
    /// example, `/usr/bin/npu-info` becomes `/usr/lib/boathook/files/usr/bin/npu-info`. In the
    /// container, the first path is a symbolic link to the second.
    pub fn to_injected_path(path: &Path) -> PathBuf {
        let relative_path = path.strip_prefix("/").unwrap_or(path);
        Path::new(INJECTED_DIR)
            .join(FILES_DIR_NAME)
            .join(relative_path)
    }

    /// Adds a library that will be mounted at `path`, such as `/usr/lib/boathook/lib/libx.so.1.2`.
    /// `links` are the names of symbolic links to it in the same directory.
    pub(super) fn add_library(
        &mut self,
        source: MountSource,
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

    /// Adds a file of the host, which will be mounted at the path that [`Self::to_injected_path`]
    /// returns. The caller has already created a symbolic link from `path` to this mount point.
    pub(super) fn add_file(&mut self, source: MountSource, path: &'p Path) {
        self.files.push((source, path));
    }

    /// Mounts a tmpfs on `/usr/lib/boathook`, and mounts all libraries and files in this tmpfs.
    /// Does nothing if everything is already mounted, because the hook may run twice.
    pub(super) fn attach(
        self,
        root: &ContainerRoot,
        mounter: &mut Mounter,
        mount_label: Option<&str>,
    ) -> Result<(), ApplyError> {
        let is_empty = self.libraries.is_empty() && self.files.is_empty();
        if is_empty || self.is_complete(root)? {
            return Ok(());
        }
        let mount_point =
            root.open_or_create_mount_point(Path::new(INJECTED_DIR), FileKind::Directory)?;
        let options = TmpfsOptions {
            size_bytes: TMPFS_SIZE_LIMIT_BYTES,
            mode: TMPFS_MODE,
            label: mount_label,
        };
        let staged_tmpfs = mounter.create_tmpfs(mount_point, &options)?;
        let mut mounts = Vec::new();
        let mut directories = TmpfsDirectories::new(staged_tmpfs.directory());
        for (path, libraries) in self.libraries {
            let directory = directories.create_directory(to_relative_path(path))?;
            for (source, name, links) in libraries {
                let target =
                    directory.open_or_create_mount_point(FileName::new(name)?, source.kind())?;
                for link in links {
                    directory.symlink(FileName::new(link)?, Path::new(name))?;
                }
                mounts.push((source, target));
            }
        }
        for (source, path) in self.files {
            let target_path = InjectedDir::to_injected_path(path);
            let (directory, name) = directories.create_parent(to_relative_path(&target_path))?;
            let target = directory.open_or_create_mount_point(name, source.kind())?;
            mounts.push((source, target));
        }
        tmpfs::attach_with_mounts(staged_tmpfs, mounts, mounter)
    }

    /// Reports whether an earlier run of the hook has already mounted all libraries and files.
    fn is_complete(&self, root: &ContainerRoot) -> Result<bool, ApplyError> {
        let libraries = self.libraries.iter().flat_map(|(path, libraries)| {
            let libraries = libraries.iter();
            libraries.map(move |(source, name, _)| (source, path.join(name)))
        });
        let files = self
            .files
            .iter()
            .map(|(source, path)| (source, InjectedDir::to_injected_path(path)));
        for (source, path) in libraries.chain(files) {
            if !tmpfs::is_mounted_at(root, &path, source)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns `path` relative to [`INJECTED_DIR`], the root of the tmpfs.
fn to_relative_path(path: &Path) -> &Path {
    path.strip_prefix(INJECTED_DIR).unwrap_or(path)
}

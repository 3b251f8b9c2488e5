//! Creates directories in a tmpfs that the hook mounts in a container, and attaches the tmpfs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;

use super::ApplyError;
use crate::container::{ContainerRoot, FileName, MountTarget, WritableDirectory};
use crate::mount::{MountSource, Mounter, StagedTmpfs};

const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o755);

/// The directories that the hook has created in a tmpfs. The keys are their paths relative to the
/// root of the tmpfs. Each directory stays open, so that it is created and opened only once.
#[derive(Debug)]
pub(super) struct TmpfsDirectories {
    by_path: BTreeMap<PathBuf, WritableDirectory>,
}

impl TmpfsDirectories {
    pub(super) fn new(root: &WritableDirectory) -> Self {
        let by_path = BTreeMap::from([(PathBuf::new(), root.clone())]);
        TmpfsDirectories { by_path }
    }

    /// Returns the parent directory and the file name of `path`, which is relative to the root of
    /// the tmpfs. Creates missing directories.
    pub(super) fn create_parent<'p>(
        &mut self,
        path: &'p Path,
    ) -> Result<(&WritableDirectory, FileName<'p>), ApplyError> {
        let relative_path = path.strip_prefix("/").unwrap_or(path);
        let (Some(parent), Some(name)) = (relative_path.parent(), relative_path.file_name()) else {
            return Err(ApplyError::Path {
                path: path.into(),
                what: "a file",
            });
        };
        Ok((self.create_directory(parent)?, FileName::new(name)?))
    }

    /// Returns the directory at `path`, which is relative to the root of the tmpfs. Creates the
    /// directory and its parents if they do not exist.
    pub(super) fn create_directory(
        &mut self,
        path: &Path,
    ) -> Result<&WritableDirectory, ApplyError> {
        if !self.by_path.contains_key(path) {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(ApplyError::Path {
                    path: path.into(),
                    what: "a directory",
                });
            };
            let directory = self
                .create_directory(parent)?
                .create_dir(FileName::new(name)?, DIRECTORY_MODE)?;
            self.by_path.insert(path.to_owned(), directory);
        }
        Ok(&self.by_path[path])
    }
}

/// Attaches a tmpfs to its mount point. Mounts each source on its target in the tmpfs. Then makes
/// the tmpfs read-only, so that programs of the container cannot replace files in it.
pub(super) fn attach_with_mounts(
    staged_tmpfs: StagedTmpfs,
    mounts: Vec<(MountSource, MountTarget)>,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let tmpfs = staged_tmpfs.attach(mounter)?;
    for (source, target) in mounts {
        mounter.attach(source, &target)?;
    }
    Ok(tmpfs.set_read_only(mounter)?)
}

/// Reports whether an earlier run of the hook has already mounted `source` at the path in the
/// container: the path then leads to the same file.
pub(super) fn is_mounted_at(
    root: &ContainerRoot,
    path: &Path,
    source: &MountSource,
) -> Result<bool, ApplyError> {
    let file = root.resolve(path)?;
    Ok(file.is_some_and(|file| file.identity() == source.identity()))
}

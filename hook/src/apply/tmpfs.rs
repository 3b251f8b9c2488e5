//! A tmpfs that the hook mounts in the container, and its directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;

use super::ApplyError;
use crate::container::{ContainerRoot, Name, Target, WritableDirectory};
use crate::mount::{Mounter, Source, StagedTmpfs};

const MODE: Mode = Mode::from_bits_truncate(0o755);

/// The directories that the hook has created in a tmpfs, by their path below its root. Many
/// files are in the same directories, so that each is created and opened once.
#[derive(Debug)]
pub(super) struct TmpfsDirectories {
    by_path: BTreeMap<PathBuf, WritableDirectory>,
}

impl TmpfsDirectories {
    pub(super) fn new(root: &WritableDirectory) -> Self {
        let by_path = BTreeMap::from([(PathBuf::new(), root.clone())]);
        TmpfsDirectories { by_path }
    }

    /// Returns the directory for the file at `path` below the root, creating the directories
    /// that are missing, and the file's name.
    pub(super) fn create_parent<'p>(
        &mut self,
        path: &'p Path,
    ) -> Result<(&WritableDirectory, Name<'p>), ApplyError> {
        let relative = path.strip_prefix("/").unwrap_or(path);
        let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(ApplyError::Path {
                path: path.into(),
                what: "a file",
            });
        };
        Ok((self.create(parent)?, Name::new(name)?))
    }

    /// Returns the directory at `path` below the root, creating it and those above it.
    pub(super) fn create(&mut self, path: &Path) -> Result<&WritableDirectory, ApplyError> {
        if !self.by_path.contains_key(path) {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(ApplyError::Path {
                    path: path.into(),
                    what: "a directory",
                });
            };
            let created = self.create(parent)?.create_dir(Name::new(name)?, MODE)?;
            self.by_path.insert(path.to_owned(), created);
        }
        Ok(&self.by_path[path])
    }
}

/// Attaches a tmpfs, mounts the sources on its entries, and makes the tmpfs read-only.
pub(super) fn attach(
    staged: StagedTmpfs,
    mounts: Vec<(Source, Target)>,
    mounter: &mut Mounter,
) -> Result<(), ApplyError> {
    let tmpfs = staged.attach(mounter)?;
    for (source, target) in mounts {
        mounter.attach(source, &target)?;
    }
    Ok(tmpfs.set_read_only(mounter)?)
}

/// Returns whether the path in the container leads to the source already.
pub(super) fn is_mounted_at(
    root: &ContainerRoot,
    path: &Path,
    source: &Source,
) -> Result<bool, ApplyError> {
    let found = root.resolve(path)?;
    Ok(found.is_some_and(|found| found.identity() == source.identity()))
}

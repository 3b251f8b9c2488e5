//! Helpers for a tmpfs that the hook mounts in the container.

use std::ffi::OsString;
use std::path::{Component, Path};

use nix::sys::stat::Mode;

use super::ApplyError;
use crate::container::{ContainerRoot, Name, Target, WritableDirectory};
use crate::mount::{Mounter, Source, StagedTmpfs};

const MODE: Mode = Mode::from_bits_truncate(0o755);

/// Returns the directory for a file below `top`, creating missing directories, and the file's
/// name.
pub(super) fn parent(
    top: &WritableDirectory,
    path: &Path,
) -> Result<(WritableDirectory, OsString), ApplyError> {
    let mut names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let name = names.next_back().ok_or_else(|| ApplyError::Path {
        path: path.into(),
        what: "a file",
    })?;
    let mut directory = top.clone();
    for part in names {
        directory = directory.create_dir(Name::new(part)?, MODE)?;
    }
    Ok((directory, name.to_owned()))
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
pub(super) fn shows(
    root: &ContainerRoot,
    path: &Path,
    source: &Source,
) -> Result<bool, ApplyError> {
    let found = root.resolve(path)?;
    Ok(found.is_some_and(|found| found.identity() == source.identity()))
}

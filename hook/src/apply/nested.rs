//! Where in a directory of our own a path has its place.

use std::ffi::OsString;
use std::path::{Component, Path};

use nix::sys::stat::Mode;

use super::ApplyError;
use crate::container::{Directory, Name};

/// The mode of the directories that are made.
const MODE: Mode = Mode::from_bits_truncate(0o755);

/// The directory below `top` for a file, made as needed, and the file's name.
pub(super) fn parent(top: &Directory, path: &Path) -> Result<(Directory, OsString), ApplyError> {
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

//! The mark of an unfinished handover, which outlives the instance that made it.
//!
//! During a handover the kubelet (1.25 to 1.36) does not know whose end it waits for (see
//! [`super::instance`]). If all instances end then, the kubelet keeps the devices of the resource,
//! as if another plugin served them. The mark tells the next instance that it must register
//! nevertheless. The kubelet empties its directory when it starts, and then has no devices either.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use device_class::name::ResourceName;
use rooted_path::replace_file;

use crate::kubelet_dir::handover_mark_file_name;

#[derive(Debug)]
pub(super) struct HandoverMark(PathBuf);

impl HandoverMark {
    /// Names the mark of a resource in `directory`, where it need not exist.
    pub(super) fn new(directory: &Path, resource: &ResourceName) -> Self {
        HandoverMark(directory.join(handover_mark_file_name(resource)))
    }

    pub(super) fn exists(&self) -> bool {
        fs::symlink_metadata(&self.0).is_ok_and(|found| found.is_file())
    }

    pub(super) fn create(&self) -> io::Result<()> {
        replace_file(&self.0, 0o600, b"")
    }

    pub(super) fn remove(&self) {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {error}", self.0.display());
            }
            _ => {}
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

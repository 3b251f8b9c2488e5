//! Temporary directories for bundles and demo hosts.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A new directory, removed when dropped.
///
/// It is under /var/tmp, because /tmp is mounted `nodev` on many machines and
/// device nodes made there could not be opened; and anyone may enter it,
/// because a container's root in a user namespace has to.
pub fn directory(purpose: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("boathook-{purpose}-"))
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/var/tmp")
        .context("cannot make a temporary directory in /var/tmp")
}

//! Creates temporary directories for bundles and hosts, and numbers for unique names.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Creates a temporary directory, which is removed when the value is dropped.
///
/// It is in /var/tmp, because /tmp is mounted with `nodev` on many machines, and device nodes there
/// could not be opened. Every user may enter it, because the root user of a container in a user
/// namespace must be able to.
pub fn directory(purpose: &str) -> Result<TempDir> {
    directory_in(Path::new("/var/tmp"), purpose)
}

/// Creates such a temporary directory in `parent` instead of /var/tmp.
pub fn directory_in(parent: &Path, purpose: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("boathook-{purpose}-"))
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(parent)
        .with_context(|| format!("cannot make a temporary directory in {}", parent.display()))
}

/// Returns a number that is different at each call in this process.
pub fn number() -> u32 {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

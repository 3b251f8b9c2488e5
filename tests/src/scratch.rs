//! Temporary directories for bundles and demo hosts, and numbers for names.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A new directory, removed when dropped.
///
/// It is under /var/tmp, because /tmp is mounted `nodev` on many machines and
/// device nodes made there could not be opened; and anyone may enter it,
/// because a container's root in a user namespace must.
pub fn directory(purpose: &str) -> Result<TempDir> {
    directory_in(Path::new("/var/tmp"), purpose)
}

/// The same in another directory than /var/tmp.
pub fn directory_in(parent: &Path, purpose: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("boathook-{purpose}-"))
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(parent)
        .with_context(|| format!("cannot make a temporary directory in {}", parent.display()))
}

/// A number that nothing else in this process has.
pub fn number() -> u32 {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

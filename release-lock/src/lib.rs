//! A lock that lets only one release of the cluster's manifests serve a node.
//!
//! A cluster can have several releases, each for its own nodes. Two releases on one node would
//! replace each other's programs and configuration, and register the same resources. Pods of the
//! same release share the lock, because an update runs the old and the new pod side by side for
//! some seconds.
//!
//! The lock is flock(2) on a file below `/run`. The file has the name of the release that
//! installed its files last. The kernel releases the lock when the process ends for any reason,
//! so a node can be given to another release at any time.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests make their own files")
)]

mod name;

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

pub use name::{InvalidReleaseName, ReleaseName};

/// The directory of the lock file, below the host's root.
const DIRECTORY: &str = "run/boathook/release";
/// The maximum number of attempts to take the lock. An attempt fails while another process
/// changes the name in the file, which takes it less than a millisecond.
const ATTEMPTS: usize = 100;
/// The time between two attempts.
const RETRY: Duration = Duration::from_millis(20);

/// The right of a release to serve a node. Dropping the value releases the lock.
#[derive(Debug)]
pub struct ReleaseLock {
    _file: File,
}

/// The reason why a release does not get a node.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseLockError {
    #[error(
        "release {other} of boathook runs on this node, and this pod is of release {release}; \
         choose different nodes for them, by nodeSelector or affinity"
    )]
    OtherReleaseRuns { release: ReleaseName, other: String },
    #[error(
        "release {other} of boathook has installed its files on this node after release \
         {release}, which this pod is of; choose different nodes for them, by nodeSelector or \
         affinity, and delete this pod if it is to stay here"
    )]
    OtherReleaseInstalled { release: ReleaseName, other: String },
    #[error("{}: the lock of the release stays busy; try again", .0.display())]
    Busy(PathBuf),
    #[error("{}: cannot {action} the lock of the release: {error}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

/// What the owner of the lock does with the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It installs its files, and thereby replaces those of any other release.
    Install,
    /// It uses the files that its release has installed.
    Serve,
}

impl ReleaseLock {
    /// Takes the lock of a node in order to install, or to remove, the release's files. From now
    /// on the node's files are those of this release.
    ///
    /// # Errors
    /// Another release runs on the node, or the lock file cannot be used.
    pub fn take_to_install(
        host_root: &Path,
        release: &ReleaseName,
    ) -> Result<Self, ReleaseLockError> {
        take(host_root, release, Purpose::Install)
    }

    /// Takes the lock of a node in order to serve its devices.
    ///
    /// # Errors
    /// Another release runs on the node or installed its files last, or the lock file cannot be
    /// used.
    pub fn take_to_serve(
        host_root: &Path,
        release: &ReleaseName,
    ) -> Result<Self, ReleaseLockError> {
        take(host_root, release, Purpose::Serve)
    }
}

fn take(
    host_root: &Path,
    release: &ReleaseName,
    purpose: Purpose,
) -> Result<ReleaseLock, ReleaseLockError> {
    let directory = host_root.join(DIRECTORY);
    let path = directory.join("lock");
    let failed = |action: &'static str| {
        let path = path.clone();
        move |error| ReleaseLockError::File {
            action,
            path,
            error,
        }
    };
    fs::create_dir_all(&directory).map_err(failed("make the directory of"))?;
    let mut file = rooted_path::open_lock_file(&path).map_err(failed("open"))?;
    for _ in 0..ATTEMPTS {
        let is_alone = is_locked(file.try_lock()).map_err(failed("take"))?;
        if is_alone {
            let last = read_name(&mut file).map_err(failed("read"))?;
            if purpose == Purpose::Serve && !last.is_empty() && last != release.as_str() {
                return Err(ReleaseLockError::OtherReleaseInstalled {
                    release: release.clone(),
                    other: last,
                });
            }
            write_name(&mut file, release).map_err(failed("write"))?;
        }
        // The kernel may give the lock to another process while it turns an exclusive lock into
        // a shared one. Therefore the name is read again afterwards.
        if is_locked(file.try_lock_shared()).map_err(failed("take"))? {
            let owner = read_name(&mut file).map_err(failed("read"))?;
            if owner == release.as_str() {
                return Ok(ReleaseLock { _file: file });
            }
            if !owner.is_empty() {
                return Err(ReleaseLockError::OtherReleaseRuns {
                    release: release.clone(),
                    other: owner,
                });
            }
            file.unlock().map_err(failed("release"))?;
        }
        sleep(RETRY);
    }
    Err(ReleaseLockError::Busy(path))
}

/// Returns whether the lock was taken. Another process may have it.
fn is_locked(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn read_name(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let bytes = rooted_path::read_bounded(file, name::MAX_LENGTH as u64)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

fn write_name(file: &mut File, release: &ReleaseName) -> io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(release.as_str().as_bytes())
}

#[cfg(test)]
mod tests;

//! A lock that lets only one cluster release, which is one installation of the manifests or the
//! chart, serve a node. The installer and the plugin take it before they change the node or
//! register a resource. A second cluster release does not get it, and fails with the name of the
//! first one.
//!
//! A cluster can have several cluster releases, each for its own nodes. Two of them on one node
//! would replace each other's programs and configuration, and register the same resources. Pods of
//! the same cluster release share the lock, because an update runs the old and the new pod side by
//! side for some seconds.
//!
//! The lock is flock(2) on a file below `/run`. The content of the file is the name of the release
//! that installed its files last. The kernel releases the lock when the process ends for whatever
//! reason, so a lock is never left behind.

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
/// The maximum number of attempts to take the lock. An attempt fails while another process writes
/// the name into the file, for less than a millisecond.
const ATTEMPTS: usize = 100;
/// The time between two attempts to take the lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The right of a release to serve a node. Dropping the value releases the lock.
#[derive(Debug)]
pub struct ReleaseLock {
    _file: File,
}

/// The reason why a release cannot take the lock of a node.
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

/// The purpose for which a process takes the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The process installs or removes the files of its release. It may take the lock after any
    /// other release has ended.
    Install,
    /// The process serves devices with the files that its release has installed.
    Serve,
}

impl ReleaseLock {
    /// Takes the lock of a node in order to install or remove the files of `release`, and records
    /// that the node's files are those of this release.
    ///
    /// # Errors
    /// Returns an error if another release runs on the node, or if the lock file cannot be used.
    pub fn take_to_install(
        host_root: &Path,
        release: &ReleaseName,
    ) -> Result<Self, ReleaseLockError> {
        take(host_root, release, Purpose::Install)
    }

    /// Takes the lock of a node in order to serve its devices.
    ///
    /// # Errors
    /// Returns an error if another release runs on the node, if another release installed its files
    /// last, or if the lock file cannot be used.
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
        let is_exclusive = is_locked(file.try_lock()).map_err(failed("take"))?;
        if is_exclusive {
            let installed = read_name(&mut file).map_err(failed("read"))?;
            if purpose == Purpose::Serve && !installed.is_empty() && installed != release.as_str() {
                return Err(ReleaseLockError::OtherReleaseInstalled {
                    release: release.clone(),
                    other: installed,
                });
            }
            write_name(&mut file, release).map_err(failed("write"))?;
        }
        // The kernel converts the exclusive lock into a shared one by releasing it first (flock(2)),
        // so another process may have written its name meanwhile. Therefore the name is read again.
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
        sleep(RETRY_INTERVAL);
    }
    Err(ReleaseLockError::Busy(path))
}

/// Returns whether an attempt took the lock. The result is `false` if another process has it.
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

//! A lock that lets only one cluster release serve a node. A cluster release is one installation of
//! the manifests or the chart. The installer and the plugin take the lock before they change the
//! node or register a resource. A second cluster release does not get the lock, and fails with the
//! name of the first one.
//!
//! A cluster can have several cluster releases, each for its own nodes. Two of them on one node
//! would replace each other's programs and configuration, and register the same resources. Pods of
//! the same cluster release share the lock, because the old and the new pod run at the same time for
//! some seconds during an update.
//!
//! The lock is flock(2) on a file below `/run`. The content of the file is the name of the cluster
//! release that installed its files last. The kernel releases the lock when the process ends for any
//! reason, so that no stale lock remains.

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

/// The path of the lock file's directory, relative to the host's root directory.
const LOCK_DIR_PATH: &str = "run/boathook/release";
/// The maximum number of attempts to take the lock. An attempt fails while another process writes
/// its name into the file, which takes less than a millisecond.
const MAX_ATTEMPTS: usize = 100;
/// The time between two attempts to take the lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The lock of a node, which a process of one cluster release holds. Dropping the value releases it.
#[derive(Debug)]
pub struct ReleaseLock {
    _file: File,
}

/// The reason why a cluster release cannot take the lock of a node.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseLockError {
    #[error(
        "release {other_name} of boathook runs on this node, and this pod is of release {release}; \
         choose different nodes for them, by nodeSelector or affinity"
    )]
    OtherReleaseRuns {
        release: ReleaseName,
        other_name: String,
    },
    #[error(
        "release {other_name} of boathook has installed its files on this node after release \
         {release}, which this pod is of; choose different nodes for them, by nodeSelector or \
         affinity, and delete this pod if it is to stay here"
    )]
    OtherReleaseInstalled {
        release: ReleaseName,
        other_name: String,
    },
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
    /// The process installs or removes the files of its cluster release. It may take the lock even if
    /// another cluster release has held it before.
    Install,
    /// The process serves devices with the files that its cluster release has installed.
    Serve,
}

impl ReleaseLock {
    /// Takes the lock of a node in order to install or remove the files of `release`, and writes
    /// the name of this cluster release into the lock file.
    ///
    /// # Errors
    /// Returns an error if another cluster release runs on the node, or if the lock file cannot be
    /// used.
    pub fn take_to_install(
        host_root: &Path,
        release: &ReleaseName,
    ) -> Result<Self, ReleaseLockError> {
        acquire_lock(host_root, release, Purpose::Install)
    }

    /// Takes the lock of a node in order to serve its devices.
    ///
    /// # Errors
    /// Returns an error if another cluster release runs on the node or has installed its files last, or
    /// if the lock file cannot be used.
    pub fn take_to_serve(
        host_root: &Path,
        release: &ReleaseName,
    ) -> Result<Self, ReleaseLockError> {
        acquire_lock(host_root, release, Purpose::Serve)
    }
}

fn acquire_lock(
    host_root: &Path,
    release: &ReleaseName,
    purpose: Purpose,
) -> Result<ReleaseLock, ReleaseLockError> {
    let directory = host_root.join(LOCK_DIR_PATH);
    let path = directory.join("lock");
    let file_error = |action: &'static str| {
        let path = path.clone();
        move |error| ReleaseLockError::File {
            action,
            path,
            error,
        }
    };
    fs::create_dir_all(&directory).map_err(file_error("make the directory of"))?;
    let mut file = rooted_path::open_lock_file(&path).map_err(file_error("open"))?;
    for _ in 0..MAX_ATTEMPTS {
        let is_exclusive = is_locked(file.try_lock()).map_err(file_error("take"))?;
        if is_exclusive {
            let installed_name = read_name(&mut file).map_err(file_error("read"))?;
            if purpose == Purpose::Serve
                && !installed_name.is_empty()
                && installed_name != release.as_str()
            {
                return Err(ReleaseLockError::OtherReleaseInstalled {
                    release: release.clone(),
                    other_name: installed_name,
                });
            }
            write_name(&mut file, release).map_err(file_error("write"))?;
        }
        // The name is read again after the conversion of the exclusive lock into a shared one,
        // because the kernel releases the lock first (flock(2)), so that another process may have
        // written its name in the meantime.
        if is_locked(file.try_lock_shared()).map_err(file_error("take"))? {
            let owner_name = read_name(&mut file).map_err(file_error("read"))?;
            if owner_name == release.as_str() {
                return Ok(ReleaseLock { _file: file });
            }
            if !owner_name.is_empty() {
                return Err(ReleaseLockError::OtherReleaseRuns {
                    release: release.clone(),
                    other_name: owner_name,
                });
            }
            file.unlock().map_err(file_error("release"))?;
        }
        sleep(RETRY_INTERVAL);
    }
    Err(ReleaseLockError::Busy(path))
}

/// Returns whether the attempt with this result has taken the lock. Returns `false` if another
/// process has the lock.
fn is_locked(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn read_name(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let bytes = rooted_path::read_bounded(file, name::MAX_NAME_BYTES as u64)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

fn write_name(file: &mut File, release: &ReleaseName) -> io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(release.as_str().as_bytes())
}

#[cfg(test)]
mod tests;

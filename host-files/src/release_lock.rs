//! A lock that lets only one cluster release serve a node. A cluster release is one installation of
//! the manifests or the chart. The installer and the plugin take the lock before they change the
//! node or register a resource. If another cluster release has the lock, they fail with the name of
//! that release.
//!
//! A cluster can have several cluster releases, each for its own nodes. Two cluster releases on one
//! node would replace each other's programs and configuration, and register the same resources.
//! Pods of the same cluster release share the lock, because the old and the new pod run at the same
//! time for some seconds during an update.
//!
//! The lock is flock(2) on a file below `/run`. The file contains the name of the cluster release
//! that last installed its files on the node. The kernel releases the lock when the process ends
//! for any reason, so that no stale lock is left.

mod name;

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::rooted_path;

pub use name::{InvalidReleaseName, ReleaseName};

/// The path of the lock file's directory, relative to the host's root directory. The directory also
/// has other files of the release that must outlive a pod, but not a reboot of the node.
pub const LOCK_DIR_PATH: &str = "run/boathook/release";
/// The maximum number of attempts to acquire the lock. An attempt fails while another process holds
/// the exclusive lock. That process holds it for less than a millisecond, to write the name of its
/// release into the file.
const MAX_LOCK_ATTEMPTS: usize = 100;
/// The time between two attempts to acquire the lock. All attempts together last two seconds.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The lock of a node, which this process holds. Meanwhile only processes of the same cluster
/// release can take the lock. Dropping the value releases the lock.
#[derive(Debug)]
pub struct NodeReleaseLock {
    _lock_file: File,
}

/// The reason why a cluster release cannot take the lock of a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeReleaseLockError {
    #[error(
        "release {other_name} of boathook runs on this node, and this pod is of release {release}; \
         choose different nodes for them, by nodeSelector or affinity"
    )]
    HeldByOtherRelease {
        release: ReleaseName,
        other_name: String,
    },
    #[error(
        "release {other_name} of boathook has installed its files on this node after release \
         {release}, which this pod is of; choose different nodes for them, by nodeSelector or \
         affinity, and delete this pod if it is to stay here"
    )]
    InstalledByOtherRelease {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockPurpose {
    /// The process installs or removes the files of its cluster release. It may take the lock even
    /// if another cluster release has held it before.
    Install,
    /// The process serves devices with the files that its cluster release has installed.
    Serve,
}

impl NodeReleaseLock {
    /// Acquires the lock of a node in order to install or remove the files of `release`, and writes
    /// the name of this cluster release into the lock file.
    ///
    /// # Errors
    /// Returns an error if another cluster release runs on the node, or if the lock file cannot be
    /// used.
    pub fn acquire_to_install(
        host_root: &Path,
        release: &ReleaseName,
    ) -> Result<Self, NodeReleaseLockError> {
        acquire_lock(host_root, release, LockPurpose::Install)
    }

    /// Acquires the lock of a node in order to serve its devices.
    ///
    /// # Errors
    /// Returns an error if another cluster release runs on the node or has installed its files
    /// last, or if the lock file cannot be used.
    pub fn acquire_to_serve(
        host_root: &Path,
        release: &ReleaseName,
    ) -> Result<Self, NodeReleaseLockError> {
        acquire_lock(host_root, release, LockPurpose::Serve)
    }
}

fn acquire_lock(
    host_root: &Path,
    release: &ReleaseName,
    purpose: LockPurpose,
) -> Result<NodeReleaseLock, NodeReleaseLockError> {
    let directory = host_root.join(LOCK_DIR_PATH);
    let path = directory.join("lock");
    let to_file_error = |action: &'static str| {
        let path = path.clone();
        move |error| NodeReleaseLockError::File {
            action,
            path,
            error,
        }
    };
    fs::create_dir_all(&directory).map_err(to_file_error("make the directory of"))?;
    let mut file = rooted_path::open_lock_file(&path).map_err(to_file_error("open"))?;
    for _ in 0..MAX_LOCK_ATTEMPTS {
        let has_exclusive_lock =
            has_acquired_lock(file.try_lock()).map_err(to_file_error("take"))?;
        if has_exclusive_lock {
            let installed_name = read_release_name(&mut file).map_err(to_file_error("read"))?;
            if purpose == LockPurpose::Serve
                && !installed_name.is_empty()
                && installed_name != release.as_str()
            {
                return Err(NodeReleaseLockError::InstalledByOtherRelease {
                    release: release.clone(),
                    other_name: installed_name,
                });
            }
            write_release_name(&mut file, release).map_err(to_file_error("write"))?;
        }
        // To convert the exclusive lock into a shared one, the kernel releases the lock first
        // (flock(2)). Another process may write its name in that moment. Therefore the name is read
        // again.
        if has_acquired_lock(file.try_lock_shared()).map_err(to_file_error("take"))? {
            let owner_name = read_release_name(&mut file).map_err(to_file_error("read"))?;
            if owner_name == release.as_str() {
                return Ok(NodeReleaseLock { _lock_file: file });
            }
            if !owner_name.is_empty() {
                return Err(NodeReleaseLockError::HeldByOtherRelease {
                    release: release.clone(),
                    other_name: owner_name,
                });
            }
            file.unlock().map_err(to_file_error("release"))?;
        }
        sleep(RETRY_INTERVAL);
    }
    Err(NodeReleaseLockError::Busy(path))
}

/// Converts the result of an attempt to lock a file. Returns `true` if the file is locked now, and
/// `false` if another process holds the lock.
fn has_acquired_lock(result: Result<(), TryLockError>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn read_release_name(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let bytes = rooted_path::read_bounded(file, name::MAX_NAME_BYTES as u64)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

fn write_release_name(file: &mut File, release: &ReleaseName) -> io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(release.as_str().as_bytes())
}

#[cfg(test)]
mod tests;

//! Creates and removes the two sockets of the driver: one for the kubelet's calls, and one for the
//! kubelet's plugin watcher. Each instance of the driver has its own sockets, so that during an
//! update a new instance can serve before the old one ends.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use injection_plan::claim_record::DRIVER_DIR_PATH;
use tokio::net::UnixListener;

use crate::names::DRIVER;

/// The maximum length of the path of a Unix socket, in bytes (unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The paths of the sockets of one instance of the driver.
#[derive(Debug, Clone)]
pub(crate) struct SocketPaths {
    /// The driver's directory below the kubelet's directory for plugins, such as
    /// `/var/lib/kubelet/plugins/boathook.dev`.
    pub(crate) driver_directory: PathBuf,
    pub(crate) service_socket_path: PathBuf,
    pub(crate) registration_socket_path: PathBuf,
}

impl SocketPaths {
    /// Builds the paths below the kubelet's root directory. `pod_uid` is the uid of the driver's
    /// own pod, which makes the paths of each instance unique.
    pub(crate) fn new(kubelet_root: &Path, pod_uid: Option<&str>) -> Result<Self, anyhow::Error> {
        let driver_directory = kubelet_root.join(DRIVER_DIR_PATH);
        let add_pod_uid =
            |name: &str| pod_uid.map_or(name.to_owned(), |uid| format!("{name}-{uid}"));
        let registration_socket_path = kubelet_root
            .join("plugins_registry")
            .join(format!("{}-reg.sock", add_pod_uid(DRIVER)));
        let service_socket_path = driver_directory.join(format!("{}.sock", add_pod_uid("dra")));
        for path in [&service_socket_path, &registration_socket_path] {
            anyhow::ensure!(
                path.is_absolute() && path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES,
                "--kubelet-dir {}: the socket {} needs an absolute path of at most {MAX_SOCKET_PATH_BYTES} bytes",
                kubelet_root.display(),
                path.display()
            );
        }
        Ok(SocketPaths {
            driver_directory,
            service_socket_path,
            registration_socket_path,
        })
    }

    /// Removes the sockets at which no process listens. They remain if an instance of the driver
    /// was killed.
    pub(crate) fn remove_stale_sockets(&self) {
        let registry_dir = self
            .registration_socket_path
            .parent()
            .unwrap_or(Path::new("/"));
        for (directory, prefix) in [(registry_dir, DRIVER), (&self.driver_directory, "dra")] {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let driver_socket_entries = entries.filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.trim_start_matches('.').starts_with(prefix) && name.ends_with(".sock")
            });
            for path in driver_socket_entries.map(|entry| entry.path()) {
                let is_socket = fs::symlink_metadata(&path)
                    .is_ok_and(|metadata| metadata.file_type().is_socket());
                if is_socket && UnixStream::connect(&path).is_err() {
                    // An error is ignored, because a stale socket does no harm.
                    let _ = fs::remove_file(&path);
                }
            }
        }
    }
}

/// A listening Unix socket and its file. Dropping it removes the file. The kubelet deregisters the
/// driver when the file of the registration socket disappears.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    pub(crate) listener: Option<UnixListener>,
}

impl Socket {
    /// Creates a socket at `path` that only root can connect to. Until the socket listens, it has a
    /// temporary name that begins with a dot. The kubelet ignores such names.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary_path = path.with_file_name(format!(".{name}"));
        let _ = fs::remove_file(&temporary_path);
        let listener = UnixListener::bind(&temporary_path)?;
        fs::set_permissions(&temporary_path, fs::Permissions::from_mode(0o600))?;
        fs::rename(&temporary_path, path)?;
        Ok(Socket {
            path: path.to_owned(),
            listener: Some(listener),
        })
    }

    pub(crate) fn exists(&self) -> bool {
        self.path.exists()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // An error is ignored, because a stale socket is removed at the next start.
        let _ = fs::remove_file(&self.path);
    }
}

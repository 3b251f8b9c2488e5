//! The two sockets of the driver: one for the kubelet's calls, and one for its plugin watcher.
//! Each instance of the driver has its own sockets, so that a new instance can serve before the
//! old one ends during an update.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use injection_plan::claim_record::DRIVER_DIRECTORY;
use tokio::net::UnixListener;

use crate::names::DRIVER;

/// The maximum length, in bytes, of a socket's path (unix(7)).
const MAX_PATH: usize = 107;

/// The paths of one instance's sockets.
#[derive(Debug, Clone)]
pub(crate) struct SocketPaths {
    /// The driver's directory at the kubelet.
    pub(crate) directory: PathBuf,
    pub(crate) service: PathBuf,
    pub(crate) registration: PathBuf,
}

impl SocketPaths {
    /// Builds the paths below the kubelet's root directory. `instance` is the uid of the driver's
    /// own pod.
    pub(crate) fn new(kubelet: &Path, instance: Option<&str>) -> Result<Self, anyhow::Error> {
        let directory = kubelet.join(DRIVER_DIRECTORY);
        let of_instance =
            |text: &str| instance.map_or(text.to_owned(), |uid| format!("{text}-{uid}"));
        let registration = kubelet
            .join("plugins_registry")
            .join(format!("{}-reg.sock", of_instance(DRIVER)));
        let service = directory.join(format!("{}.sock", of_instance("dra")));
        for path in [&service, &registration] {
            anyhow::ensure!(
                path.is_absolute() && path.as_os_str().len() <= MAX_PATH,
                "--kubelet-dir {}: the socket {} needs an absolute path of at most {MAX_PATH} bytes",
                kubelet.display(),
                path.display()
            );
        }
        Ok(SocketPaths {
            directory,
            service,
            registration,
        })
    }

    /// Removes the sockets of killed instances.
    pub(crate) fn remove_stale_sockets(&self) {
        let registry = self.registration.parent().unwrap_or(Path::new("/"));
        for (directory, prefix) in [(registry, DRIVER), (&self.directory, "dra")] {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let own_entries = entries.filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.trim_start_matches('.').starts_with(prefix) && name.ends_with(".sock")
            });
            for path in own_entries.map(|entry| entry.path()) {
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

/// A listening socket. Dropping it removes the file, whereupon the kubelet deregisters the driver.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    pub(crate) listener: Option<UnixListener>,
}

impl Socket {
    /// Listens at `path`, accessible to root only. The socket is created under a name that begins
    /// with a dot, which the kubelet ignores, and is renamed once it listens.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}"));
        let _ = fs::remove_file(&temporary);
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
        fs::rename(&temporary, path)?;
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

//! The driver root: the directory that contains the libraries and programs of a driver. It is not
//! `/` if the driver is installed in a container.

use std::path::{Path, PathBuf};

use crate::host::HostView;

/// The driver root of a class. It is the host's root directory, unless the class file or
/// config.toml names another directory.
#[derive(Clone, Copy)]
pub(super) struct DriverRoot<'a> {
    pub(super) view: &'a dyn HostView,
    /// The path of the driver root on the host, with symbolic links resolved.
    pub(super) path: &'a Path,
}

impl<'a> DriverRoot<'a> {
    pub(super) fn from_host(view: &'a dyn HostView) -> Self {
        let path = Path::new("/");
        DriverRoot { view, path }
    }

    /// Returns the directories in which libraries are searched after the class's own directories. A
    /// driver root may have no ld.so.cache, unlike the host's root, so its usual library
    /// directories are searched.
    pub(super) fn library_directories(&self) -> &'static [&'static str] {
        if self.is_host_root() {
            &[]
        } else {
            &["/lib64", "/lib", "/usr/lib64", "/usr/lib"]
        }
    }

    /// Returns the directories in which programs are searched after the class's own directories.
    pub(super) fn program_directories(&self) -> &'static [&'static str] {
        if self.is_host_root() {
            &[]
        } else {
            &["/bin", "/usr/bin", "/sbin", "/usr/sbin"]
        }
    }

    fn is_host_root(&self) -> bool {
        self.path.as_os_str() == "/"
    }

    /// Converts a path inside the driver root to a path on the host.
    pub(super) fn to_host_path(self, path_in_root: PathBuf) -> PathBuf {
        if self.is_host_root() {
            return path_in_root;
        }
        let relative_path = path_in_root.strip_prefix("/").unwrap_or(&path_in_root);
        self.path.join(relative_path)
    }
}

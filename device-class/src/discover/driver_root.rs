//! The driver root: the directory that contains the libraries and programs of a driver. It is not
//! `/` if the driver is installed in a container.

use std::path::{Path, PathBuf};

use crate::host::HostView;

/// The directories in which distributions install the libraries of the host's own programs.
/// Debian's directory for the architecture comes first, because on Debian the other directories may
/// contain 32-bit libraries.
#[cfg(target_arch = "x86_64")]
const USUAL_LIBRARY_DIRECTORIES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/lib",
    "/usr/lib64",
    "/usr/lib",
];
#[cfg(target_arch = "aarch64")]
const USUAL_LIBRARY_DIRECTORIES: &[&str] = &[
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib",
    "/usr/lib64",
    "/usr/lib",
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const USUAL_LIBRARY_DIRECTORIES: &[&str] = &["/lib64", "/lib", "/usr/lib64", "/usr/lib"];

/// The driver root of a class. It is the host's root directory, unless the class file or
/// config.toml names another directory.
#[derive(Clone, Copy)]
pub(super) struct DriverRoot<'a> {
    pub(super) view: &'a dyn HostView,
    /// The path of the driver root on the host, with symbolic links resolved, such as
    /// `/run/vendor/driver`.
    pub(super) path: &'a Path,
}

impl<'a> DriverRoot<'a> {
    pub(super) fn from_host(view: &'a dyn HostView) -> Self {
        let path = Path::new("/");
        DriverRoot { view, path }
    }

    /// Returns the directories in which libraries are searched after the directories of the class
    /// file. The list is empty if the root is the host's and has an ld.so.cache, which lists the
    /// libraries. If ld.so.cache cannot be read, the list is also empty, and the search of a
    /// library returns the error.
    pub(super) fn library_directories(&self) -> &'static [&'static str] {
        if self.is_host_root() && self.view.has_library_cache().unwrap_or(true) {
            &[]
        } else {
            USUAL_LIBRARY_DIRECTORIES
        }
    }

    /// Returns the directories in which programs are searched after the directories of the class
    /// file. On the host itself there are none, because a class file has the paths of its programs
    /// there.
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

    /// Converts a path inside the driver root to a path on the host. For the root `/run/driver`,
    /// `/lib/libx.so.1` becomes `/run/driver/lib/libx.so.1`.
    pub(super) fn to_host_path(self, path_in_root: PathBuf) -> PathBuf {
        if self.is_host_root() {
            return path_in_root;
        }
        let relative_path = path_in_root.strip_prefix("/").unwrap_or(&path_in_root);
        self.path.join(relative_path)
    }
}

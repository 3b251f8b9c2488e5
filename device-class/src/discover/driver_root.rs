//! The directory below which a host has the libraries and programs of a driver.

use std::path::{Path, PathBuf};

use crate::host::HostView;

/// The driver root of a class. It is the root of the host unless the class or the configuration
/// names another directory.
#[derive(Clone, Copy)]
pub(super) struct DriverRoot<'a> {
    pub(super) view: &'a dyn HostView,
    /// The path of the driver root on the host, without links.
    pub(super) path: &'a Path,
}

impl<'a> DriverRoot<'a> {
    pub(super) fn of_host(view: &'a dyn HostView) -> Self {
        let path = Path::new("/");
        DriverRoot { view, path }
    }

    /// Converts a path inside the driver root to the path on the host.
    pub(super) fn on_host(&self, inside: PathBuf) -> PathBuf {
        if self.path.as_os_str() == "/" {
            return inside;
        }
        self.path.join(inside.strip_prefix("/").unwrap_or(&inside))
    }
}

//! The root below which a class's driver has its files.

use std::path::{Path, PathBuf};

use crate::host::HostView;

/// The root of a class's driver: most often the host's own.
#[derive(Clone, Copy)]
pub(super) struct DriverRoot<'a> {
    pub(super) view: &'a dyn HostView,
    /// Where it is on the host, without links.
    pub(super) path: &'a Path,
}

impl<'a> DriverRoot<'a> {
    pub(super) fn of_host(view: &'a dyn HostView) -> Self {
        let path = Path::new("/");
        DriverRoot { view, path }
    }

    /// The path on the host of something in the driver's root.
    pub(super) fn on_host(&self, inside: PathBuf) -> PathBuf {
        if self.path.as_os_str() == "/" {
            return inside;
        }
        self.path.join(inside.strip_prefix("/").unwrap_or(&inside))
    }
}

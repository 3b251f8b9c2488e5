//! The root below which a class's driver has its files.

use std::io;
use std::path::{Path, PathBuf};

use crate::host::HostView;

/// The root of a class's driver: most often the host's own.
#[derive(Clone, Copy)]
pub(super) struct DriverRoot<'a> {
    /// What is under it.
    pub(super) view: &'a dyn HostView,
    /// Where it is on the host.
    pub(super) path: &'a Path,
}

impl<'a> DriverRoot<'a> {
    /// The host's own root.
    pub(super) fn of_host(view: &'a dyn HostView) -> Self {
        let path = Path::new("/");
        DriverRoot { view, path }
    }

    /// The path on the host of something in the driver's root, without links.
    pub(super) fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let inside = self.view.canonical(path)?;
        if self.path.as_os_str() == "/" {
            return Ok(inside);
        }
        Ok(self.path.join(inside.strip_prefix("/").unwrap_or(&inside)))
    }
}

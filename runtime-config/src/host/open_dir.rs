//! An open directory of the host.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use host_files::rooted_path::{self, OpenedComponent, Resolver, RootDir};

/// An open directory, and its name in its parent directory. For the root, `name` is the path with
/// which it was opened.
#[derive(Debug, Clone)]
pub(super) struct OpenDir {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) name: OsString,
}

impl OpenDir {
    pub(super) fn open(path: &Path) -> rooted_path::Result<Self> {
        let root = RootDir::open(path, Resolver::Walk)?.into_handle(path)?;
        Ok(Self {
            fd: Arc::new(root.into_fd()),
            name: path.into(),
        })
    }
}

impl From<OpenedComponent> for OpenDir {
    fn from(component: OpenedComponent) -> Self {
        Self {
            fd: Arc::new(component.handle.into_fd()),
            name: component.name,
        }
    }
}

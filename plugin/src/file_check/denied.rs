//! A view of the host that notices what this process may not read.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use device_class::HostView;
use device_class::host::{Entry, Programs, View};
use device_class::ownership::OwnershipError;

/// Passes all calls to another view, and keeps the first path for which this user's
/// rights were not enough.
pub(super) struct NoticeDenied<'a> {
    view: View<'a>,
    denied: Rc<RefCell<Option<PathBuf>>>,
}

impl<'a> NoticeDenied<'a> {
    pub(super) fn new(host: &'a dyn HostView) -> Self {
        NoticeDenied {
            view: View::Borrowed(host),
            denied: Rc::default(),
        }
    }

    /// What could not be read.
    pub(super) fn denied(&self) -> Option<PathBuf> {
        self.denied.borrow().clone()
    }

    fn notice<T>(&self, path: &Path, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            self.note(path);
        }
        result
    }

    fn note(&self, path: &Path) {
        self.denied.borrow_mut().get_or_insert_with(|| path.into());
    }
}

impl HostView for NoticeDenied<'_> {
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.notice(path, self.view.entry(path))
    }

    fn is_link(&self, path: &Path) -> bool {
        self.view.is_link(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.notice(path, self.view.list(path))
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.notice(path, self.view.read(path, limit))
    }

    fn shared_directory(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        self.notice(path, self.view.shared_directory(path))
    }

    fn check_root_only(&self, path: &Path) -> Result<(), OwnershipError> {
        let checked = self.view.check_root_only(path);
        if let Err(OwnershipError::Open { path, error }) = &checked
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            self.note(path);
        }
        checked
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.notice(path, self.view.read_link(path))
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.notice(path, self.view.canonical(path))
    }

    fn libraries(&self, soname: &str, programs: Programs) -> io::Result<Vec<PathBuf>> {
        self.notice(Path::new(soname), self.view.libraries(soname, programs))
    }

    fn library_names(&self, programs: Programs) -> io::Result<Vec<String>> {
        let cache = Path::new("/etc/ld.so.cache");
        self.notice(cache, self.view.library_names(programs))
    }

    fn driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>> {
        let root = self.notice(path, self.view.driver_root(path))?;
        Ok(Box::new(NoticeDenied {
            view: View::Owned(root),
            denied: Rc::clone(&self.denied),
        }))
    }
}

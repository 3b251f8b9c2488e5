//! The view that another one wraps.

use std::ops::Deref;

use super::HostView;

/// A host, or the root of a driver in it, which [`HostView::driver_root`] gives.
pub enum View<'a> {
    Borrowed(&'a dyn HostView),
    Owned(Box<dyn HostView + 'a>),
}

impl<'a> Deref for View<'a> {
    type Target = dyn HostView + 'a;

    fn deref(&self) -> &Self::Target {
        match self {
            View::Borrowed(view) => *view,
            View::Owned(view) => &**view,
        }
    }
}
